//! Aligned columns for people; plain text when nobody looks.

use std::fmt;

use anstyle::Style;

use super::output::DIM;

const GAP: &str = "   ";

/// Rows under headings. A heading that begins with `>` is of numbers: its column is aligned to the right.
#[derive(Debug)]
pub(crate) struct Table {
    /// Whether a column is aligned to the right.
    to_the_right: Vec<bool>,
    /// The first one is the headings.
    rows: Vec<Vec<Cell>>,
}

/// A text in a table, and its colour.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A text in a colour.
    pub(crate) fn painted(style: Style, text: impl Into<String>) -> Cell {
        Cell { text: text.into(), style }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: text.into(), style: Style::new() }
    }
}

/// A row of a table, from texts and cells: `row![name, count(3), Cell::painted(BAD, "late")]`.
macro_rules! row {
    ($($cell:expr),+ $(,)?) => { vec![$($crate::ops::table::Cell::from($cell)),+] };
}
pub(crate) use row;

impl Table {
    /// A table of rows that have as many cells as there are titles.
    pub(crate) fn new(titles: &[&'static str], rows: impl IntoIterator<Item = Vec<Cell>>) -> Table {
        let heading = |title: &&'static str| Cell::painted(DIM, title.trim_start_matches('>'));
        let headings = titles.iter().map(heading).collect();
        let rows: Vec<_> = std::iter::once(headings).chain(rows).collect();
        debug_assert!(rows.iter().all(|row| row.len() == titles.len()));
        Table { to_the_right: titles.iter().map(|title| title.starts_with('>')).collect(), rows }
    }

    fn width(&self, column: usize) -> usize {
        self.rows.iter().map(|row| row[column].width()).max().unwrap_or(0)
    }

    fn write_line(&self, f: &mut fmt::Formatter<'_>, widths: &[usize], cells: &[Cell]) -> fmt::Result {
        let last = cells.len() - 1;
        for (at, cell) in cells.iter().enumerate() {
            let padding = " ".repeat(widths[at] - cell.width());
            let Cell { text, style } = cell;
            match (self.to_the_right[at], at == last) {
                (true, _) => write!(f, "{padding}{style}{text}{style:#}")?,
                // No blanks at the ends of lines.
                (false, true) => write!(f, "{style}{text}{style:#}")?,
                (false, false) => write!(f, "{style}{text}{style:#}{padding}")?,
            }
            f.write_str(if at == last { "\n" } else { GAP })?;
        }
        Ok(())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.to_the_right.len()).map(|column| self.width(column)).collect();
        self.rows.iter().try_for_each(|row| self.write_line(f, &widths, row))
    }
}

/// Names and values under each other, for one thing told in full.
#[derive(Debug, Default)]
pub(crate) struct Facts(Vec<(String, Cell)>);

impl Facts {
    /// Adds a fact.
    pub(crate) fn push(&mut self, name: impl Into<String>, value: impl Into<Cell>) {
        self.0.push((name.into(), value.into()));
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, Cell { text, style }) in &self.0 {
            let padding = " ".repeat(width - name.chars().count());
            writeln!(f, "{DIM}{name}{DIM:#}{padding}{GAP}{style}{text}{style:#}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(shown: &impl fmt::Display) -> String {
        anstream::adapter::strip_str(&shown.to_string()).to_string()
    }

    #[test]
    fn columns_are_aligned_and_lines_end_with_text() {
        let rows = [row!["orders", "12", "x"], row!["é", "1,234,567", Cell::painted(DIM, "longer")]];
        let table = Table::new(&["STREAM", ">LENGTH", "NOTE"], rows);
        assert_eq!(
            plain(&table),
            "STREAM      LENGTH   NOTE\n\
             orders          12   x\n\
             é        1,234,567   longer\n"
        );
    }

    #[test]
    fn facts_stand_under_each_other() {
        let mut facts = Facts::default();
        facts.push("id", "1-1");
        facts.push("consumer", "a");
        assert_eq!(plain(&facts), "id         1-1\nconsumer   a\n");
    }
}
