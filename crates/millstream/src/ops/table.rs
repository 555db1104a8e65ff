//! Tables and property lists with aligned columns.

use std::fmt;

use anstyle::Style;

use super::output::DIM;
use super::safe_text::printable;

const GAP: &str = "   ";

/// Rows under headings. The column of a heading that begins with `>` is aligned to the right, for numbers.
#[derive(Debug)]
pub(crate) struct Table {
    /// Whether each column is aligned to the right.
    right_aligned: Vec<bool>,
    /// The first row contains the headings.
    rows: Vec<Vec<Cell>>,
}

/// A cell of a table: text that is safe on a terminal, and its style.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// Creates a cell with a style.
    pub(crate) fn styled(style: Style, text: impl Into<String>) -> Cell {
        Cell { text: printable(text.into()), style }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::styled(Style::new(), text)
    }
}

/// Creates a row of a table from strings and cells: `row![name, count(3), Cell::styled(BAD, "late")]`.
macro_rules! row {
    ($($cell:expr),+ $(,)?) => { vec![$($crate::ops::table::Cell::from($cell)),+] };
}
pub(crate) use row;

impl Table {
    /// Creates a table. Every row must have one cell for each title.
    pub(crate) fn new(titles: &[&'static str], rows: impl IntoIterator<Item = Vec<Cell>>) -> Table {
        let heading = |title: &&'static str| Cell::styled(DIM, title.trim_start_matches('>'));
        let headings = titles.iter().map(heading).collect();
        let rows: Vec<_> = std::iter::once(headings).chain(rows).collect();
        debug_assert!(rows.iter().all(|row| row.len() == titles.len()));
        Table { right_aligned: titles.iter().map(|title| title.starts_with('>')).collect(), rows }
    }

    fn width(&self, column: usize) -> usize {
        self.rows.iter().map(|row| row[column].width()).max().unwrap_or(0)
    }

    fn write_line(&self, f: &mut fmt::Formatter<'_>, widths: &[usize], cells: &[Cell]) -> fmt::Result {
        let last = cells.len() - 1;
        for (at, cell) in cells.iter().enumerate() {
            let padding = " ".repeat(widths[at] - cell.width());
            let Cell { text, style } = cell;
            match (self.right_aligned[at], at == last) {
                (true, _) => write!(f, "{padding}{style}{text}{style:#}")?,
                // No spaces at the end of a line.
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
        let widths: Vec<usize> = (0..self.right_aligned.len()).map(|column| self.width(column)).collect();
        self.rows.iter().try_for_each(|row| self.write_line(f, &widths, row))
    }
}

/// A list of names and values, one pair per line, that describes one thing.
#[derive(Debug, Default)]
pub(crate) struct Properties(Vec<(String, Cell)>);

impl Properties {
    /// Adds a property.
    pub(crate) fn push(&mut self, name: impl Into<String>, value: impl Into<Cell>) {
        self.0.push((printable(name.into()), value.into()));
    }
}

impl fmt::Display for Properties {
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
        let rows = [row!["orders", "12", "x"], row!["é", "1,234,567", Cell::styled(DIM, "longer")]];
        let table = Table::new(&["STREAM", ">LENGTH", "NOTE"], rows);
        assert_eq!(
            plain(&table),
            "STREAM      LENGTH   NOTE\n\
             orders          12   x\n\
             é        1,234,567   longer\n"
        );
    }

    #[test]
    fn cells_are_safe_on_a_terminal() {
        let name = "a\u{1b}[8m\nb";
        let table = Table::new(&["STREAM"], [row![name], vec![Cell::styled(DIM, name)]]);
        assert_eq!(plain(&table), "STREAM\na\\u{1b}[8m\\nb\na\\u{1b}[8m\\nb\n");
        let mut properties = Properties::default();
        properties.push(name, name);
        assert_eq!(plain(&properties), "a\\u{1b}[8m\\nb   a\\u{1b}[8m\\nb\n");
    }

    #[test]
    fn values_of_properties_are_aligned() {
        let mut properties = Properties::default();
        properties.push("id", "1-1");
        properties.push("consumer", "a");
        assert_eq!(plain(&properties), "id         1-1\nconsumer   a\n");
    }
}
