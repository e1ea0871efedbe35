//! Which rowids of a table were compared: a set of ranges that has to become everything.

use tidegate_engine::digest::KeyRange;

/// Ranges compared of one table, merged, in order. A range is `(low, high]`; the open ends
/// lie beyond every `i64`, which is why the bounds are wider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    ranges: Vec<(i128, i128)>,
}

const LOWEST: i128 = i64::MIN as i128 - 1;
const HIGHEST: i128 = i64::MAX as i128 + 1;

impl Coverage {
    /// Adds a range. One that holds no rowid adds nothing.
    pub fn add(&mut self, range: KeyRange) {
        let (mut low, mut high) = bounds(range);
        if low >= high {
            return;
        }
        self.ranges.retain(|&(l, h)| {
            let touches = l <= high && low <= h;
            if touches {
                low = low.min(l);
                high = high.max(h);
            }
            !touches
        });
        let at = self.ranges.partition_point(|&(l, _)| l < low);
        self.ranges.insert(at, (low, high));
    }

    /// True when every rowid that could exist was compared.
    pub fn is_complete(&self) -> bool {
        self.ranges == [(LOWEST, HIGHEST)]
    }
}

fn bounds(range: KeyRange) -> (i128, i128) {
    let low = range.after.map_or(LOWEST, i128::from);
    let high = range.up_to.map_or(HIGHEST, i128::from);
    (low, high)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn coverage(ranges: &[(Option<i64>, Option<i64>)]) -> Coverage {
        let mut coverage = Coverage::default();
        for &(after, up_to) in ranges {
            coverage.add(KeyRange { after, up_to });
        }
        coverage
    }

    #[test]
    fn ranges_that_meet_cover_everything_in_any_order() {
        assert!(coverage(&[(None, None)]).is_complete());
        assert!(coverage(&[(Some(9), None), (None, Some(4)), (Some(4), Some(9))]).is_complete());
        assert!(coverage(&[(Some(i64::MAX), None), (None, Some(i64::MAX))]).is_complete());
    }

    #[test]
    fn one_rowid_that_is_missing_is_noticed() {
        assert!(!coverage(&[]).is_complete());
        assert!(!coverage(&[(None, Some(4)), (Some(5), None)]).is_complete());
        assert!(!coverage(&[(None, Some(i64::MAX))]).is_complete());
        assert!(!coverage(&[(Some(i64::MIN), None)]).is_complete());
        assert!(!coverage(&[(Some(5), Some(5)), (Some(9), Some(3))]).is_complete());
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_set_of_rowids(
            ranges in prop::collection::vec((-4..6_i64, -4..6_i64), 0..6),
            low in -4..6_i64,
            high in -4..6_i64,
        ) {
            let mut coverage = coverage(&[(None, Some(low)), (Some(high), None)]);
            for &(after, up_to) in &ranges {
                coverage.add(KeyRange { after: Some(after), up_to: Some(up_to) });
            }
            let is_covered = |id: i64| {
                id <= low || id > high || ranges.iter().any(|&(a, u)| a < id && id <= u)
            };
            prop_assert_eq!(coverage.is_complete(), (-10..10).all(is_covered));
        }
    }
}
