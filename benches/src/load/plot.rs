//! Draws distributions of latencies.

use anyhow::{Context as _, Result};
use plotters::prelude::*;

use super::report::Latency;

const SIZE: (u32, u32) = (720, 420);

/// Colours that differ for those, too, who do not tell red from green.
const COLOURS: [RGBColor; 4] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(120, 120, 120),
];

/// A picture (SVG) of distributions, each with its name. The percentiles are spread so that the slow ones have room.
pub fn distribution(title: &str, of: &[(&str, &Latency)]) -> Result<String> {
    let mut svg = String::new();
    draw(&mut svg, title, of).context("draw the distribution")?;
    Ok(svg)
}

fn draw(svg: &mut String, title: &str, of: &[(&str, &Latency)]) -> Result<()> {
    let points: Vec<(&str, Vec<(f64, f64)>)> = of
        .iter()
        .map(|(name, latency)| (*name, spread(latency)))
        .collect();
    let all = || points.iter().flat_map(|(_, points)| points);
    let right = all().map(|point| point.0).fold(1.0, f64::max);
    let low = all().map(|point| point.1).fold(f64::MAX, f64::min).min(1.0);
    let high = all().map(|point| point.1).fold(low * 10.0, f64::max);

    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..right, (low * 0.8..high * 1.25).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("percentile")
        .y_desc("milliseconds")
        .x_labels(8)
        .x_label_formatter(&percentile)
        .draw()?;
    for ((name, points), colour) in points.into_iter().zip(COLOURS.iter().cycle()) {
        let line = LineSeries::new(points, colour.stroke_width(2));
        let sample = move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2));
        chart.draw_series(line)?.label(name).legend(sample);
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    area.present()?;
    Ok(())
}

/// The curve with each part of all calls as the number of nines that it has.
fn spread(latency: &Latency) -> Vec<(f64, f64)> {
    let nines = |part: f64| -(1.0 - part).max(1e-6).log10();
    latency
        .curve
        .iter()
        .filter(|(part, _)| *part < 1.0)
        .map(|(part, milliseconds)| (nines(*part), *milliseconds))
        .collect()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "plotters asks for it")]
fn percentile(nines: &f64) -> String {
    let percent = 100.0 * (1.0 - 10_f64.powf(-nines));
    let text = format!("{percent:.4}");
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_distribution_has_its_line_and_its_name() {
        let latency = |slow: f64| Latency {
            curve: vec![(0.0, 0.1), (0.5, 0.2), (0.99, slow), (1.0, slow * 2.0)],
            ..Latency::default()
        };
        let (one, other) = (latency(0.5), latency(4.0));
        let svg = distribution("Latency", &[("sluice", &one), ("peer", &other)]).unwrap();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains("sluice") && svg.contains("peer"));
        assert_eq!(percentile(&2.0), "99%");
        assert_eq!(percentile(&0.0), "0%");
    }
}
