//! Tables for the terminal and for pages.

use comfy_table::{CellAlignment, presets};
use maud::{Markup, html};

/// A table whose first column names things and whose other columns hold numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        Self {
            header: header.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row of cells.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) -> &mut Self {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }

    /// For the terminal, without colours, as wide as it needs to be.
    pub fn to_text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::UTF8_FULL_CONDENSED)
            .set_header(&self.header);
        for row in &self.rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    /// Returns the header and then each row, for files of comma-separated values.
    pub fn records(&self) -> impl Iterator<Item = &[String]> {
        std::iter::once(&self.header)
            .chain(&self.rows)
            .map(Vec::as_slice)
    }

    pub(crate) fn to_markup(&self) -> Markup {
        html! {
            div.scroll {
                table {
                    thead { tr { @for cell in &self.header { th scope="col" { (cell) } } } }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (column, cell) in row.iter().enumerate() {
                                    @if column == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_aligned_to_the_right() {
        let mut table = Table::new(["scheme", "mean ms"]);
        table.row(["ecmp", "25.5"]).row(["split", "3.4"]);
        let text = table.to_text();
        assert!(text.contains("│ split  ┆     3.4 │"), "{text}");
    }

    #[test]
    fn markup_is_escaped() {
        let mut table = Table::new(["<a>"]);
        table.row(["1 < 2"]);
        let markup = table.to_markup().into_string();
        assert!(
            markup.contains("&lt;a&gt;") && markup.contains("1 &lt; 2"),
            "{markup}"
        );
    }
}
