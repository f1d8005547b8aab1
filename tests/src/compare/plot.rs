//! `docs/performance/compare.svg` and the tables of `docs/performance.md`, made from the figures.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::measure::Upgrade;
use super::report::{Figures, table, table_of_phases};
use super::side::Flow;
use crate::figures::with_table;

/// Markers around the table of the rows.
const FLOWS: (&str, &str) = (
    "<!-- begin of the table of flows -->\n",
    "<!-- end of the table of flows -->\n",
);

/// Markers around that of the phases.
const PHASES: (&str, &str) = (
    "<!-- begin of the table of phases -->\n",
    "<!-- end of the table of phases -->\n",
);

const WIDTH: f64 = 760.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 64.0;
/// Height of the bar of a package with the room below it.
const BAR: f64 = 18.0;
/// Of a lane, beside its bars.
const HEAD: f64 = 62.0;

/// Seconds between two lines of the scale.
const TICK: f64 = 5.0;

const GREY: &str = "#c9c9c9";
const GREEN: &str = "#009e73";
const RED: &str = "#d55e00";
const BLUE: &str = "#0072b2";

/// Draws the picture, and writes the tables, below the directory `docs`.
pub(super) fn draw(figures: &Figures, docs: &Path) -> Result<()> {
    let page = docs.join("performance.md");
    let text = fs::read_to_string(&page).with_context(|| format!("read {}", page.display()))?;
    let text = with_tables(&text, figures)
        .with_context(|| format!("{} has no place for a table", page.display()))?;
    let svg = picture(&figures.upgrades).context("the figures have no upgrades of both flows")?;
    fs::write(&page, text).with_context(|| format!("write {}", page.display()))?;
    let path = docs.join("performance/compare.svg");
    fs::write(&path, svg).with_context(|| format!("write {}", path.display()))
}

/// The page with both tables; none if it has no place for one of them.
fn with_tables(page: &str, figures: &Figures) -> Option<String> {
    let page = with_table(page, FLOWS, &table(figures))?;
    with_table(&page, PHASES, &table_of_phases(figures))
}

/// One lane for each flow: that upgrade with the longest delay whose lag is the median. None if one of both has none.
fn picture(upgrades: &[Upgrade]) -> Option<String> {
    let longest = upgrades.iter().map(|upgrade| upgrade.delay_s).max()?;
    let lanes = [
        typical(upgrades, Flow::Pause, longest)?,
        typical(upgrades, Flow::Sluice, longest)?,
    ];
    let latest = lanes.iter().flat_map(|lane| {
        let packages = lane.packages.iter().map(|(_, ready)| *ready);
        packages.chain([lane.control_plane_s, lane.workers_s])
    });
    let end = (latest.fold(1.0, f64::max) / TICK).ceil() * TICK;
    let x = |seconds: f64| LEFT + seconds / end * (WIDTH - LEFT - RIGHT);
    let lane_height = |lane: &Upgrade| HEAD + BAR * count(lane.packages.len());
    let bottom = TOP + lanes.iter().map(|lane| lane_height(lane)).sum::<f64>();
    let height = bottom + 40.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"15\">One upgrade each, {} to {}, of packages that take {longest} s to become ready</text>\n",
        lanes[0].from, lanes[0].to
    );
    legend(&mut svg);
    for tick in 0_u32.. {
        let seconds = TICK * f64::from(tick);
        if seconds > end {
            break;
        }
        let at = x(seconds);
        let _never = writeln!(
            svg,
            "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#eee\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{seconds:.0} s</text>",
            bottom + 18.0
        );
    }
    let mut top = TOP;
    for lane in lanes {
        draw_lane(&mut svg, lane, top, x);
        top += lane_height(lane);
    }
    let _never = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">since label and version of the Cluster were changed</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        bottom + 34.0
    );
    Some(svg + "</svg>\n")
}

fn legend(svg: &mut String) {
    let mut x = 16.0;
    for (colour, name, width) in [
        (GREY, "package is not ready", 150.0),
        (GREEN, "ready", 70.0),
        ("#f6d58a", "Cluster is paused", 130.0),
        (RED, "control plane written", 150.0),
        (BLUE, "workers written", 0.0),
    ] {
        let _never = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"36\" width=\"14\" height=\"10\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"45\">{name}</text>",
            x + 19.0
        );
        x += width;
    }
}

fn draw_lane(svg: &mut String, lane: &Upgrade, top: f64, x: impl Fn(f64) -> f64) {
    let height = BAR * count(lane.packages.len());
    let bars = top + 38.0;
    let end = WIDTH - RIGHT;
    let lag = lane.lag_s.abs();
    let (verdict, colour) = if lane.early {
        (
            format!("control plane written {lag:.1} s BEFORE the last package was ready"),
            RED,
        )
    } else {
        (
            format!("control plane written {lag:.1} s after the last package was ready"),
            GREEN,
        )
    };
    let _never = writeln!(
        svg,
        "<path d=\"M16 {top}H{end}\" stroke=\"#999\"/><text x=\"16\" y=\"{:.1}\" font-size=\"14\" font-weight=\"bold\">{}</text>\
         <text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"bold\" fill=\"{colour}\">{verdict}</text>",
        top + 20.0,
        capitalized(&lane.flow.to_string()),
        top + 20.0
    );
    for (from, to) in &lane.pauses {
        let _never = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#f6d58a\"/>",
            x(*from),
            bars - 6.0,
            x(*to) - x(*from),
            height + 10.0
        );
    }
    for ((name, ready), row) in lane.packages.iter().zip(0_u32..) {
        let y = bars + BAR * f64::from(row);
        let (begin, at) = (x(0.0), x(*ready));
        let _never = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>\
             <rect x=\"{begin:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"11\" fill=\"{GREY}\"/>\
             <rect x=\"{at:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"11\" fill=\"{GREEN}\"/>",
            LEFT - 8.0,
            y + 10.0,
            at - begin,
            end - at
        );
    }
    // On either side, so that both can be read where the lines are close.
    let written = [
        (lane.control_plane_s, RED, "end", -4.0),
        (lane.workers_s, BLUE, "start", 4.0),
    ];
    for (seconds, colour, anchor, beside) in written {
        let at = x(seconds);
        let _never = writeln!(
            svg,
            "<path d=\"M{at:.1} {:.1}v{:.1}\" stroke=\"{colour}\" stroke-width=\"4\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" text-anchor=\"{anchor}\" fill=\"{colour}\">{seconds:.1} s</text>",
            bars - 8.0,
            height + 14.0,
            at + beside,
            bars + height + 10.0
        );
    }
}

/// The upgrade whose lag is the median.
fn typical(upgrades: &[Upgrade], flow: Flow, delay_s: u64) -> Option<&Upgrade> {
    let own = upgrades
        .iter()
        .filter(|upgrade| upgrade.flow == flow && upgrade.delay_s == delay_s);
    let mut own: Vec<&Upgrade> = own.collect();
    own.sort_by(|one, other| one.lag_s.total_cmp(&other.lag_s));
    own.get(own.len() / 2).copied()
}

fn count(of: usize) -> f64 {
    u32::try_from(of).map_or(0.0, f64::from)
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::upgrade;
    use super::*;
    use crate::sources::root;

    #[test]
    fn each_flow_has_a_lane_with_its_result() {
        let svg = picture(&[
            upgrade(Flow::Pause, 30, -4.0),
            upgrade(Flow::Sluice, 0, 0.7),
            upgrade(Flow::Sluice, 30, 0.5),
        ])
        .unwrap();
        assert!(
            svg.contains("4.0 s BEFORE") && svg.contains("0.5 s after"),
            "{svg}"
        );
        assert!(svg.contains(">Pause flow<") && svg.contains(">Sluice<"), "{svg}");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!(picture(&[upgrade(Flow::Pause, 30, -4.0)]), None);
    }

    #[test]
    fn the_page_has_a_place_for_both_tables() {
        let page = fs::read_to_string(root().join("docs/performance.md")).unwrap();
        let figures = Figures::of(vec![upgrade(Flow::Pause, 30, -4.0)]);
        let text = with_tables(&page, &figures).unwrap();
        assert!(text.contains(&table(&figures)) && text.contains(&table_of_phases(&figures)));
        assert_eq!(with_tables("a", &figures), None);
    }
}
