//! Charts: their titles as text, and their series as a table of categories and values.

use super::{
    archive::Archive,
    collect::Collector,
    tree::{self, Element},
};
use crate::{failure::Failure, table::Table};

/// Points of a series, and series of a chart, that are read.
const POINTS: usize = 10_000;
const SERIES: usize = 256;

/// The texts and values of a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Chart {
    /// Of the chart and its axes.
    titles: Vec<String>,
    tables: Vec<Vec<Vec<String>>>,
}

impl Chart {
    /// Without its values, which are in the cells of the sheet that it is drawn from.
    pub(super) fn titles_only(self) -> Self {
        Self { tables: Vec::new(), ..self }
    }

    /// Adds its titles and tables to the blocks.
    pub(super) fn add_to(self, collector: &mut Collector) {
        collector.paragraph(&self.titles.join("\n"));
        self.tables.into_iter().for_each(|table| collector.table(Table::new(table)));
    }
}

/// A chart of Office, ECMA-376 part 1, 21.2; none if there is no such part.
pub(super) fn office(archive: &mut Archive<'_>, part: &str) -> Result<Option<Chart>, Failure> {
    let Some(xml) = archive.text(part)? else { return Ok(None) };
    let root = tree::parse(&xml)?;
    let Some(chart) = root.all("chart").into_iter().next() else { return Ok(None) };
    let mut titles: Vec<String> = chart.child("title").into_iter().map(title).collect();
    let axes = ["catAx", "dateAx", "valAx", "serAx"].into_iter().flat_map(|axis| chart.all(axis));
    titles.extend(axes.filter_map(|axis| axis.child("title")).map(title));
    titles.retain(|title| !title.is_empty());
    let series: Vec<Series> = chart.all("ser").into_iter().take(SERIES).map(Series::of).collect();
    Ok(Some(Chart { titles, tables: tables(&series) }))
}

/// Paragraphs of a title are its lines.
fn title(title: &Element) -> String {
    let lines = title.lines();
    let text = if lines.is_empty() { points(title).into_iter().flatten().collect() } else { lines };
    text.join(" ").trim().to_owned()
}

#[derive(Debug, Default)]
struct Series {
    name: String,
    categories: Vec<Option<String>>,
    values: Vec<Option<String>>,
}

impl Series {
    fn of(series: &Element) -> Self {
        let of = |names: [&str; 2]| {
            let found = names.into_iter().find_map(|name| series.child(name));
            found.map(points).unwrap_or_default()
        };
        let name =
            series.child("tx").map(|name| points(name).into_iter().flatten().collect::<Vec<_>>().join(" "));
        let direct = || series.child("tx").and_then(|name| name.child("v")).map(Element::text);
        Self {
            name: name.filter(|name| !name.is_empty()).or_else(direct).unwrap_or_default(),
            categories: of(["cat", "xVal"]),
            values: of(["val", "yVal"]),
        }
    }
}

/// The points that are stored beside a reference to cells. Those of categories may have levels: the innermost is first,
/// and an outer one holds until the next.
fn points(of: &Element) -> Vec<Option<String>> {
    let levels = of.all("lvl");
    if levels.is_empty() {
        return points_of(of);
    }
    let mut levels: Vec<Vec<Option<String>>> = levels.into_iter().map(points_of).collect();
    let count = levels.iter().map(Vec::len).max().unwrap_or(0);
    for outer in levels.iter_mut().skip(1) {
        outer.resize(count, None);
        for at in 1..count {
            if outer[at].is_none() {
                outer[at] = outer[at - 1].clone();
            }
        }
    }
    let name = |at: usize| {
        let parts = levels.iter().rev().filter_map(|level| level.get(at)?.clone());
        Some(parts.collect::<Vec<_>>().join(" ")).filter(|name| !name.is_empty())
    };
    (0..count).map(name).collect()
}

fn points_of(of: &Element) -> Vec<Option<String>> {
    let mut found = Vec::new();
    for (order, point) in of.all("pt").into_iter().enumerate().take(POINTS) {
        let at = point.attribute("idx").and_then(|at| at.parse().ok()).unwrap_or(order);
        if at < POINTS {
            found.resize(found.len().max(at + 1), None);
            found[at] = point.child("v").map(|value| value.text().trim().to_owned());
        }
    }
    found
}

/// One table of all series that have the same categories; in a chart of points each series has its own.
fn tables(series: &[Series]) -> Vec<Vec<Vec<String>>> {
    series
        .chunk_by(|one, next| one.categories == next.categories || next.categories.is_empty())
        .map(table)
        .collect()
}

fn table(series: &[Series]) -> Vec<Vec<String>> {
    let categories = series.first().map(|first| first.categories.as_slice()).unwrap_or_default();
    let rows = series.iter().map(|one| one.values.len()).max().unwrap_or(0).max(categories.len());
    let text = |values: &[Option<String>], row: usize| values.get(row).cloned().flatten().unwrap_or_default();
    let head = [String::new()].into_iter().chain(series.iter().map(|one| one.name.clone())).collect();
    let body = (0..rows).map(|row| {
        let values = series.iter().map(|one| text(&one.values, row));
        [text(categories, row)].into_iter().chain(values).collect()
    });
    [head].into_iter().chain(body).collect()
}

/// A chart of open documents, ISO 26300 part 3, 11.
pub(super) fn open_document(root: &Element) -> Option<Chart> {
    let outer = root.all("chart").into_iter().next()?;
    let chart = outer.child("chart").unwrap_or(outer);
    let text = |of: &Element| -> String {
        let lines = of.all("p").into_iter().map(Element::text);
        lines.collect::<Vec<_>>().join(" ").trim().to_owned()
    };
    let mut titles: Vec<String> =
        ["title", "subtitle"].into_iter().filter_map(|name| chart.child(name)).map(text).collect();
    titles.extend(chart.all("axis").into_iter().filter_map(|axis| axis.child("title")).map(text));
    titles.retain(|title| !title.is_empty());
    let rows = chart.all("table").into_iter().flat_map(|table| table.all("table-row")).take(POINTS);
    let table: Vec<Vec<String>> = rows
        .map(|row| row.children().filter(|cell| cell.name == "table-cell").take(SERIES).map(text).collect())
        .collect();
    Some(Chart { titles, tables: vec![table] })
}

#[cfg(test)]
mod tests {
    use super::{super::archive::packed, *};
    use crate::block::Block;

    fn texts(chart: Chart) -> Vec<String> {
        let mut collector = Collector::default();
        chart.add_to(&mut collector);
        collector.finish().iter().map(Block::text).collect()
    }

    const SERIES: &str = "<c:ser><c:tx><c:strRef><c:f>x</c:f><c:strCache><c:pt idx='0'><c:v>NAME</c:v></c:pt></c:strCache></c:strRef></c:tx>\
        <c:cat><c:strRef><c:strCache><c:ptCount val='2'/><c:pt idx='0'><c:v>May</c:v></c:pt><c:pt idx='1'><c:v>June</c:v></c:pt>\
        </c:strCache></c:strRef></c:cat><c:val><c:numRef><c:numCache><c:formatCode>0</c:formatCode><c:pt idx='1'><c:v>4.5</c:v></c:pt>\
        </c:numCache></c:numRef></c:val></c:ser>";

    #[test]
    fn office_chart_becomes_titles_and_a_table() {
        let title = "<c:title><c:tx><c:rich><a:p><a:r><a:t>Runs of </a:t></a:r><a:r><a:t>points</a:t></a:r></a:p></c:rich></c:tx></c:title>";
        let (one, two) = (SERIES.replace("NAME", "Left"), SERIES.replace("NAME", "Right"));
        let xml = format!(
            "<c:chartSpace><c:chart>{title}<c:plotArea><c:barChart>{one}{two}</c:barChart><c:catAx>{}</c:catAx></c:plotArea></c:chart></c:chartSpace>",
            title.replace("Runs of", "Month of")
        );
        let bytes = packed(&[("c.xml", &xml)]);
        let chart = office(&mut Archive::open(&bytes).unwrap(), "c.xml").unwrap().unwrap();
        assert_eq!(
            texts(chart),
            ["Runs of points\nMonth of points", "\tLeft\tRight\nMay\t\t\nJune\t4.5\t4.5"]
        );
    }

    #[test]
    fn open_chart_becomes_titles_and_a_table() {
        let cell = |text: &str| format!("<table:table-cell><text:p>{text}</text:p></table:table-cell>");
        let xml = format!(
            "<office:document-content><office:body><office:chart><chart:chart chart:class='chart:bar'><chart:title><text:p>Runs</text:p>\
             </chart:title><table:table><table:table-rows><table:table-row>{}{}</table:table-row></table:table-rows></table:table>\
             </chart:chart></office:chart></office:body></office:document-content>",
            cell("May"),
            cell("4.5")
        );
        assert_eq!(texts(open_document(&tree::parse(&xml).unwrap()).unwrap()), ["Runs", "May\t4.5"]);
    }
}
