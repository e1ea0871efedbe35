//! Line charts as SVG, nothing more than results need.

use std::fmt::Write as _;

/// A chart: one line for each series over the same labels on the horizontal axis.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Above the chart.
    pub title: String,
    /// Under the horizontal axis.
    pub x_title: String,
    /// Beside the vertical axis.
    pub y_title: String,
    /// Places on the horizontal axis, evenly spaced.
    pub labels: Vec<String>,
    /// The lines.
    pub series: Vec<Series>,
    /// Vertical axis by powers of ten.
    pub logarithmic: bool,
}

/// One line.
#[derive(Debug, Clone)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// A value for each label, or none where nothing was measured.
    pub values: Vec<Option<f64>>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 92.0;
const COLOURS: [&str; 5] = ["#1b6ca8", "#d1495b", "#2e933c", "#8d6a9f", "#c98a00"];

impl Chart {
    /// The chart as an SVG document.
    pub fn svg(&self) -> String {
        let mut out = String::new();
        self.write(&mut out).expect("writing to a string");
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{}\" y=\"22\" text-anchor=\"middle\" font-size=\"15\">{}</text>",
            WIDTH / 2.0,
            escape(&self.title)
        )?;
        self.write_axes(out)?;
        for (index, series) in self.series.iter().enumerate() {
            self.write_series(out, index, series)?;
        }
        writeln!(out, "</svg>")
    }

    fn write_axes(&self, out: &mut String) -> std::fmt::Result {
        let bottom = HEIGHT - BOTTOM;
        for tick in self.ticks() {
            let y = self.y(tick);
            writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                short(tick)
            )?;
        }
        for (index, label) in self.labels.iter().enumerate() {
            writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                self.x(index),
                bottom + 18.0,
                escape(label)
            )?;
        }
        let middle = (TOP + bottom) / 2.0;
        writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"16\" y=\"{middle}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 16 {middle})\">{}</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            bottom + 38.0,
            escape(&self.x_title),
            escape(&self.y_title)
        )
    }

    fn write_series(&self, out: &mut String, index: usize, series: &Series) -> std::fmt::Result {
        let colour = COLOURS[index % COLOURS.len()];
        let mut points = String::new();
        for (place, value) in series.values.iter().enumerate() {
            let Some(value) = value else { continue };
            let (x, y) = (self.x(place), self.y(*value));
            write!(points, "{x:.1},{y:.1} ")?;
            writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"
            )?;
        }
        let column = WIDTH / self.series.len().max(1) as f64;
        let x = 20.0 + column * index as f64;
        let y = HEIGHT - 22.0;
        writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{y}\">{}</text>",
            points.trim_end(),
            y - 10.0,
            x + 18.0,
            escape(&series.name)
        )
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.series
            .iter()
            .flat_map(|s| s.values.iter().flatten().copied())
    }

    fn top(&self) -> f64 {
        let highest = self.values().fold(1e-9, f64::max);
        let power = 10_f64.powf(highest.log10().floor());
        let steps = if self.logarithmic {
            [10.0; 4]
        } else {
            [1.0, 2.0, 5.0, 10.0]
        };
        let fit = steps
            .iter()
            .map(|step| step * power)
            .find(|top| *top >= highest);
        fit.unwrap_or(10.0 * power)
    }

    fn floor(&self) -> f64 {
        if !self.logarithmic {
            return 0.0;
        }
        let lowest = self.values().filter(|v| *v > 0.0).fold(f64::MAX, f64::min);
        10_f64.powf(lowest.min(self.top() / 10.0).log10().floor())
    }

    fn ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            return (0..=5).map(|i| self.top() * f64::from(i) / 5.0).collect();
        }
        let mut ticks = vec![self.floor()];
        while ticks[ticks.len() - 1] < self.top() * 0.999 && ticks.len() < 12 {
            ticks.push(ticks[ticks.len() - 1] * 10.0);
        }
        ticks
    }

    fn x(&self, index: usize) -> f64 {
        let room = WIDTH - LEFT - RIGHT;
        LEFT + room * (index as f64 + 0.5) / self.labels.len().max(1) as f64
    }

    fn y(&self, value: f64) -> f64 {
        let (floor, top) = (self.floor(), self.top());
        let share = if self.logarithmic {
            (value.max(floor).log10() - floor.log10()) / (top.log10() - floor.log10())
        } else {
            value / top
        };
        let bottom = HEIGHT - BOTTOM;
        bottom - (bottom - TOP) * share
    }
}

/// A number with a unit letter.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", round(v / 1e6)),
        v if v >= 1e3 => format!("{}k", round(v / 1e3)),
        v => round(v),
    }
}

fn round(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_holds_its_lines_within_its_frame() {
        for logarithmic in [false, true] {
            let chart = Chart {
                title: "a & b".into(),
                x_title: "clients".into(),
                y_title: "requests/s".into(),
                labels: vec!["1".into(), "16".into()],
                series: vec![Series {
                    name: "one".into(),
                    values: vec![Some(1_900.0), Some(14_000.0)],
                }],
                logarithmic,
            };
            let svg = chart.svg();
            assert!(svg.contains("a &amp; b") && svg.ends_with("</svg>\n"));
            for value in [1_900.0, 14_000.0] {
                let y = chart.y(value);
                assert!((TOP..=HEIGHT - BOTTOM).contains(&y), "{y}");
            }
        }
    }
}
