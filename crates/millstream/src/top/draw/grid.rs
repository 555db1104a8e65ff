//! Aligned columns that fit a width: names are clipped, and the least important columns are dropped.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Spaces between two columns.
const GAP: usize = 2;
/// Names are not clipped below this width. If the columns still do not fit, one is dropped.
const NAME_MIN: usize = 16;

pub(super) struct Column {
    pub(super) heading: String,
    pub(super) kind: CellKind,
    /// The column with the highest number is dropped first. Columns with 0 are never dropped.
    pub(super) drop_priority: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellKind {
    /// Names, which can be clipped.
    Name,
    Word,
    /// Numbers, aligned to the right.
    Number,
}

pub(super) struct Grid {
    columns: Vec<Column>,
    rows: Vec<Vec<Span<'static>>>,
}

impl Grid {
    pub(super) fn new(columns: Vec<Column>) -> Grid {
        Grid { columns, rows: Vec::new() }
    }

    pub(super) fn push(&mut self, row: Vec<Span<'static>>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    /// Returns the headings and the rows, one line each.
    pub(super) fn lines(&self, width: usize, heading_style: Style) -> Vec<Line<'static>> {
        let widths = self.widths(width);
        let headings: Vec<Span<'static>> =
            self.columns.iter().map(|column| Span::styled(column.heading.clone(), heading_style)).collect();
        std::iter::once(&headings).chain(&self.rows).map(|row| self.line(row, &widths)).collect()
    }

    fn line(&self, row: &[Span<'static>], widths: &[Option<usize>]) -> Line<'static> {
        let mut line = Line::default();
        for ((column, cell), width) in self.columns.iter().zip(row).zip(widths) {
            let Some(width) = *width else { continue };
            if !line.spans.is_empty() {
                line.push_span(" ".repeat(GAP));
            }
            let text = clipped(&cell.content, width);
            let padding = " ".repeat(width.saturating_sub(Span::raw(text.as_str()).width()));
            let text = match column.kind {
                CellKind::Number => padding + &text,
                CellKind::Name | CellKind::Word => text + &padding,
            };
            line.push_span(Span::styled(text, cell.style));
        }
        line
    }

    /// Returns the width of each column. `None` for a dropped column.
    fn widths(&self, width: usize) -> Vec<Option<usize>> {
        let natural: Vec<usize> = (0..self.columns.len()).map(|index| self.natural_width(index)).collect();
        let least = |index: usize| match self.columns[index].kind {
            CellKind::Name => natural[index].min(NAME_MIN),
            CellKind::Word | CellKind::Number => natural[index],
        };
        let mut kept: Vec<usize> = (0..self.columns.len()).collect();
        let taken = |kept: &[usize]| {
            let gaps = kept.len().saturating_sub(1) * GAP;
            kept.iter().map(|index| least(*index)).sum::<usize>() + gaps
        };
        while taken(&kept) > width {
            let dropped = kept.iter().max_by_key(|index| self.columns[**index].drop_priority);
            let Some(dropped) = dropped.copied().filter(|index| self.columns[*index].drop_priority > 0)
            else {
                break;
            };
            kept.retain(|index| *index != dropped);
        }
        let mut spare = width.saturating_sub(taken(&kept));
        let mut widths = vec![None; self.columns.len()];
        for index in kept {
            let more = spare.min(natural[index] - least(index));
            spare -= more;
            widths[index] = Some(least(index) + more);
        }
        widths
    }

    fn natural_width(&self, index: usize) -> usize {
        let heading = Span::raw(self.columns[index].heading.as_str()).width();
        self.rows.iter().map(|row| row[index].width()).fold(heading, usize::max)
    }
}

/// Cuts a text to a width in terminal columns, with `…` at the end.
fn clipped(text: &str, width: usize) -> String {
    if Span::raw(text).width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if Span::raw(kept.as_str()).width() >= width {
            kept.pop();
            break;
        }
    }
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let column =
            |heading: &str, kind, drop_priority| Column { heading: heading.to_owned(), kind, drop_priority };
        let mut grid = Grid::new(vec![
            column("NAME", CellKind::Name, 0),
            column("SIZE", CellKind::Number, 2),
            column("LAG", CellKind::Number, 1),
            column("HEALTH", CellKind::Word, 0),
        ]);
        grid.push(vec!["orders".into(), "1,000".into(), "7".into(), "ok".into()]);
        grid.push(vec!["a-stream-with-a-very-long-name".into(), "2".into(), "10".into(), "critical".into()]);
        grid
    }

    fn text(width: usize) -> Vec<String> {
        grid().lines(width, Style::new()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn columns_are_aligned() {
        assert_eq!(
            text(usize::MAX),
            [
                "NAME                             SIZE  LAG  HEALTH  ",
                "orders                          1,000    7  ok      ",
                "a-stream-with-a-very-long-name      2   10  critical",
            ]
        );
    }

    #[test]
    fn names_are_clipped_before_a_column_is_dropped() {
        assert_eq!(text(40)[2], "a-stream-with-a-v…      2   10  critical");
        assert_eq!(text(38)[2], "a-stream-with-a…      2   10  critical");
        assert_eq!(text(37)[0], "NAME                    LAG  HEALTH  ");
    }

    #[test]
    fn columns_with_priority_0_are_never_dropped() {
        assert_eq!(text(3)[1], "orders            ok      ");
    }

    #[test]
    fn wide_characters_are_not_split() {
        assert_eq!(clipped("漢字漢字", 8), "漢字漢字");
        assert_eq!(clipped("漢字漢字", 6), "漢字…");
        assert_eq!(clipped("abc", 2), "a…");
    }
}
