//! Curves as SVG, in colours that follow the page's.
//!
//! # Theory
//!
//! The charting crate writes fixed colours. Each colour that it is given here stands for one of the page's, and its
//! spelling in the SVG is replaced by that variable of the style sheet, so that one drawing serves light and dark.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// Of the page's palette.
const COLOURS: usize = 8;
const WIDTH: u32 = 480;
const HEIGHT: u32 = 320;
const SPAN_OF_LOGARITHMS: f64 = 100.0;

/// A line: its name, and its points.
pub(super) struct Line {
    pub(super) name: String,
    /// Its place in the palette.
    pub(super) colour: usize,
    pub(super) points: Vec<(f64, f64)>,
}

/// What to draw.
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) across: String,
    pub(super) up: String,
    pub(super) log_across: bool,
    pub(super) log_up: bool,
    pub(super) lines: Vec<Line>,
}

const INK: RGBColor = RGBColor(1, 1, 1);
const FAINT: RGBColor = RGBColor(2, 2, 2);

fn series(number: usize) -> RGBColor {
    RGBColor(3, 3, (number % COLOURS) as u8)
}

fn spelled(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

/// The smallest and the largest, with a little room; of logarithms, if it is a logarithmic axis.
fn range(values: impl Iterator<Item = f64> + Clone, log: bool) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    match log {
        true => (low / 1.25, high * 1.25),
        false => {
            let room = ((high - low) * 0.05).max(high.abs() * 0.01).max(1e-6);
            (if low >= 0.0 { 0.0 } else { low - room }, high + room)
        }
    }
}

/// A number of an axis.
fn label(value: &f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        size if size >= 1e4 => format!("{}k", trimmed(value / 1e3)),
        _ => trimmed(*value),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Draws; the SVG is as wide as what it stands in.
pub(super) fn draw(chart: &Chart) -> Result<String> {
    let usable =
        |(x, y): &(f64, f64)| x.is_finite() && y.is_finite() && (!chart.log_across || *x > 0.0) && (!chart.log_up || *y > 0.0);
    let points: Vec<(f64, f64)> = chart.lines.iter().flat_map(|line| &line.points).copied().filter(usable).collect();
    if points.is_empty() {
        return Err(anyhow!("{}: nothing to draw", chart.title));
    }
    let (left, right) = range(points.iter().map(|point| point.0), chart.log_across);
    let (bottom, top) = range(points.iter().map(|point| point.1), chart.log_up);
    // Within two powers of ten a logarithmic axis has one number at most, or none.
    let log_up = chart.log_up && top / bottom >= SPAN_OF_LOGARITHMS;
    let (bottom, top) = if log_up { (bottom, top) } else { range(points.iter().map(|point| point.1), false) };
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let lines: Vec<(&Line, Vec<(f64, f64)>)> =
            chart.lines.iter().map(|line| (line, line.points.iter().copied().filter(usable).collect())).collect();
        // The kind of each axis is part of the type of what is drawn on.
        macro_rules! on {
            ($across:expr, $up:expr) => {{
                let mut builder = ChartBuilder::on(&area);
                builder.margin(10).x_label_area_size(40).y_label_area_size(62);
                let mut context = builder.build_cartesian_2d($across, $up)?;
                context
                    .configure_mesh()
                    .bold_line_style(FAINT)
                    .light_line_style(TRANSPARENT)
                    .axis_style(FAINT)
                    .label_style(("sans-serif", 15).into_font().color(&INK))
                    .axis_desc_style(("sans-serif", 15).into_font().color(&INK))
                    .x_desc(&chart.across)
                    .y_desc(&chart.up)
                    .x_labels(8)
                    .y_labels(6)
                    .x_label_formatter(&label)
                    .y_label_formatter(&label)
                    .draw()?;
                for (line, points) in &lines {
                    let colour = series(line.colour);
                    context.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
                    context.draw_series(points.iter().map(|point| Circle::new(*point, 4, colour.filled())))?;
                }
            }};
        }
        match (chart.log_across, log_up) {
            (true, true) => on!((left..right).log_scale().base(2.0), (bottom..top).log_scale()),
            (true, false) => on!((left..right).log_scale().base(2.0), bottom..top),
            (false, true) => on!(left..right, (bottom..top).log_scale()),
            (false, false) => on!(left..right, bottom..top),
        }
        area.present()?;
    }
    Ok(themed(&svg))
}

fn themed(svg: &str) -> String {
    let mut text = svg.replace(&spelled(INK), "var(--ink)").replace(&spelled(FAINT), "var(--faint)");
    for number in 0..COLOURS {
        text = text.replace(&spelled(series(number)), &format!("var(--series-{number})"));
    }
    let sized = format!("width=\"{WIDTH}\" height=\"{HEIGHT}\"");
    text.replace(&sized, "role=\"img\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        let lines = vec![Line { name: "tarn".into(), colour: 1, points }];
        Chart { title: "speed".into(), across: "threads".into(), up: "/s".into(), log_across: true, log_up: true, lines }
    }

    #[test]
    fn a_drawing_has_its_points_and_no_colours_of_its_own() {
        let svg = draw(&chart(vec![(1.0, 10.0), (32.0, 1000.0), (1024.0, 0.0)])).unwrap();
        assert_eq!(svg.matches("<circle").count(), 2, "what a logarithm does not have is left out: {svg}");
        assert!(svg.contains("var(--series-1)") && svg.contains("var(--ink)") && svg.contains("threads"), "{svg}");
        assert!(!svg.contains("\"#"), "{svg}");
        assert!(draw(&chart(Vec::new())).is_err());
    }

    /// Once a chart from 2,000 to 9,000 had no number on its axis.
    #[test]
    fn each_axis_has_numbers() {
        for (low, high) in [(2000.0, 9000.0), (2.0, 9.0), (0.5, 80.0), (10.0, 5000.0), (3.0, 3.0)] {
            let svg = draw(&chart(vec![(1.0, low), (2.0, high)])).unwrap();
            // Those that stand beside the axis on the left are aligned to their ends.
            let beside = svg.split("<text").filter(|text| text.contains("text-anchor=\"end\"")).count();
            assert!(beside >= 2, "{low} to {high}: {beside} numbers: {svg}");
        }
    }

    #[test]
    fn numbers_of_axes_are_short() {
        assert_eq!([1.0, 0.25, 9999.0, 20_000.0, 2.5e6].map(|value| label(&value)), ["1", "0.25", "9999", "20k", "2.5M"]);
    }
}
