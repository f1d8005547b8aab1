//! `docs/performance/*.svg` and the table of `docs/performance.md`, made from the report.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::report::{Entry, table};
use crate::figures::with_table;

/// Markers around the table.
const BEGIN: &str = "<!-- begin of the table -->\n";
const END: &str = "<!-- end of the table -->\n";

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// Lines of a picture, told apart without colours by their dashes.
const STYLES: [(&str, &str); 4] = [
    ("#1f77b4", ""),
    ("#d62728", "6 3"),
    ("#2ca02c", "2 3"),
    ("#555555", "10 4"),
];

/// The smallest value that is drawn on an axis that has no zero.
const SMALLEST: f64 = 0.01;

/// One line: its name, and its value at each size.
struct Line {
    name: &'static str,
    of: fn(&Entry) -> Option<f64>,
}

const MEMORY: [Line; 3] = [
    line("leader", |entry| entry.rss_mb_leader),
    line("standby", |entry| entry.rss_mb_standby),
    line("Go informers", |entry| entry.peer_rss_mb),
];

const REQUESTS: [Line; 3] = [
    line("drift check, management", |entry| {
        entry.requests_per_look_management
    }),
    line("drift check, workload", |entry| entry.requests_per_look_workload),
    line("between drift checks, all", |entry| entry.requests_between_looks),
];

const fn line(name: &'static str, of: fn(&Entry) -> Option<f64>) -> Line {
    Line { name, of }
}

/// Draws both pictures, and writes the table, below the directory `docs`.
pub(super) fn draw(entries: &[Entry], docs: &Path) -> Result<()> {
    let page = docs.join("performance.md");
    let text = fs::read_to_string(&page).with_context(|| format!("read {}", page.display()))?;
    let text = with_table(&text, (BEGIN, END), &table(entries))
        .with_context(|| format!("{} has no place for a table", page.display()))?;
    fs::write(&page, text).with_context(|| format!("write {}", page.display()))?;
    let directory = &docs.join("performance");
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    for (file, title, lines) in [
        (
            "memory.svg",
            "Resident memory in MB over clusters at rest",
            &MEMORY,
        ),
        ("requests.svg", "Requests over clusters at rest", &REQUESTS),
    ] {
        let path = directory.join(file);
        fs::write(&path, picture(title, entries, lines))
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn picture(title: &str, entries: &[Entry], lines: &[Line]) -> String {
    let values = || lines.iter().flat_map(|line| entries.iter().filter_map(line.of));
    let across = Axis::of(
        entries.iter().map(|entry| f64::from(entry.clusters)),
        LEFT,
        WIDTH - RIGHT,
    );
    let up = Axis::of(values(), HEIGHT - BOTTOM, TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{title}</text>\n"
    );
    for ten in across.tens() {
        let x = across.at(ten);
        let (top, bottom) = (TOP, HEIGHT - BOTTOM);
        let _never = writeln!(
            svg,
            "<path d=\"M{x:.1} {top}V{bottom}\" stroke=\"#ddd\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{ten}</text>",
            bottom + 18.0
        );
    }
    for ten in up.tens() {
        let y = up.at(ten);
        let _never = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ten}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0
        );
    }
    for ((line, (colour, dashes)), row) in lines.iter().zip(STYLES).zip(0_u32..) {
        let points: Vec<(f64, f64)> = entries
            .iter()
            .filter_map(|entry| Some((across.at(f64::from(entry.clusters)), up.at((line.of)(entry)?))))
            .collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _never = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
            path.join(" ")
        );
        for (x, y) in points {
            let _never = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
            );
        }
        let (x, y) = (WIDTH - RIGHT + 10.0, TOP + 10.0 + 20.0 * f64::from(row));
        let _never = writeln!(
            svg,
            "<path d=\"M{x:.1} {y:.1}h24\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + 28.0,
            y + 4.0,
            line.name
        );
    }
    svg + "</svg>\n"
}

/// A logarithmic axis between two places.
struct Axis {
    /// Powers of ten at its ends.
    low: i32,
    high: i32,
    from: f64,
    to: f64,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut low, mut high) = (f64::MAX, SMALLEST);
        for value in values {
            low = low.min(value.max(SMALLEST));
            high = high.max(value);
        }
        let mut powers = -2..=9;
        let low = powers
            .clone()
            .rev()
            .find(|power| 10_f64.powi(*power) <= low)
            .unwrap_or(-2);
        let high = powers
            .find(|power| 10_f64.powi(*power) >= high && *power > low)
            .unwrap_or(9);
        Self { low, high, from, to }
    }

    /// The powers of ten on it.
    fn tens(&self) -> impl Iterator<Item = f64> + use<> {
        (self.low..=self.high).map(|power| 10_f64.powi(power))
    }

    fn at(&self, value: f64) -> f64 {
        let (low, high) = (f64::from(self.low), f64::from(self.high));
        let part = (value.max(SMALLEST).log10() - low) / (high - low);
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_at_powers_of_ten() {
        let axis = Axis::of([100.0, 1_000.0, 10_000.0].into_iter(), 0.0, 200.0);
        assert_eq!(axis.tens().collect::<Vec<_>>(), [100.0, 1_000.0, 10_000.0]);
        assert!((axis.at(1_000.0) - 100.0).abs() < 1e-9);
        let with_zero = Axis::of([0.0, 7.0].into_iter(), 0.0, 1.0);
        assert_eq!((with_zero.low, with_zero.high), (-2, 1));
        assert!(with_zero.at(0.0).abs() < 1e-9);
    }

    #[test]
    fn a_picture_has_a_point_for_each_value() {
        let entry = |clusters, rss| Entry {
            clusters,
            rss_mb_leader: Some(rss),
            ..Entry::default()
        };
        let svg = picture("Memory", &[entry(100, 20.0), entry(1_000, 25.0)], &MEMORY);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains(">Memory</text>") && svg.ends_with("</svg>\n"));
    }
}
