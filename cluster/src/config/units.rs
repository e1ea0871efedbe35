//! Sizes and durations as people write them.

use std::time::Duration;

const SIZES: &[(&str, u64)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// `1048576`, `"64MiB"`, `"1.5GB"`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let wrong = || format!("`{text}` is not a size; write a number of bytes, or `64MiB`, `2GB`");
    let (number, factor) = SIZES
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?.trim_end(), *factor)))
        .unwrap_or((text, 1));
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(wrong);
    }
    match number.parse::<f64>() {
        Ok(n) if factor > 1 && n.is_finite() && n >= 0.0 => Ok((n * factor as f64) as u64),
        _ => Err(wrong()),
    }
}

/// `"250ms"`, `"5s"`, `"2m"`, `"1h"`. A bare number is refused: seconds or milliseconds?
pub fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let wrong = || format!("`{text}` is not a duration; write `250ms`, `5s`, `2m` or `1h`");
    let (number, unit_ms) = [("ms", 1.0), ("s", 1e3), ("m", 6e4), ("h", 3.6e6)]
        .iter()
        .find_map(|(unit, ms)| Some((text.strip_suffix(unit)?.trim_end(), *ms)))
        .ok_or_else(wrong)?;
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let ms = number * unit_ms;
    if ms.is_finite() && (0.0..=3.6e6 * 24.0 * 365.0).contains(&ms) {
        Ok(Duration::from_micros((ms * 1e3) as u64))
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        assert_eq!(bytes("1048576"), Ok(1 << 20));
        assert_eq!(bytes("64MiB"), Ok(64 << 20));
        assert_eq!(bytes("1.5 GB"), Ok(1_500_000_000));
        assert!(bytes("64 bananas").is_err());
        assert!(bytes("-1MiB").is_err());
        assert!(bytes("99999999999999TiB").is_err());
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!(duration("5").is_err());
        assert!(duration("-5s").is_err());
    }
}
