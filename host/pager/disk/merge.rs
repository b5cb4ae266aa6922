//! One order of recency out of several: that of a group over its stripes.
//!
//! A snapshot tells which chunk of its store was used before which, and no times. Stripes fill up
//! together and are used alike, so the chunk in the middle of one order was used about when that in
//! the middle of another was: orders are merged by relative position.
//!
//! Called by the opening of the tier.

/// Merges lists, each coldest first, into one: by the share of its own list that lies before an
/// item, and by the order of the lists where that is the same. The order within a list stays.
pub(super) fn by_recency<T>(lists: Vec<Vec<T>>) -> Vec<T> {
    let mut ranked: Vec<(u128, usize, T)> = Vec::with_capacity(lists.iter().map(Vec::len).sum());
    for (number, list) in lists.into_iter().enumerate() {
        let length = list.len() as u128;
        let items = list.into_iter().zip(0_u128..);
        // The place of an item's middle, in 2^64ths of its list.
        ranked.extend(items.map(|(item, at)| (((2 * at + 1) << 63) / length, number, item)));
    }
    // Stable: within a list the shares grow, and equal ones keep their order.
    ranked.sort_by_key(|(share, number, _)| (*share, *number));
    ranked.into_iter().map(|(_, _, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::by_recency;
    use proptest::prelude::*;

    #[test]
    fn lists_of_one_length_alternate_and_others_spread_evenly() {
        assert_eq!(by_recency(vec![vec![1, 3, 5], vec![2, 4, 6]]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(by_recency(vec![vec![10], vec![1, 2, 3, 4]]), [1, 2, 10, 3, 4]);
        assert_eq!(by_recency(vec![vec![], vec![7]]), [7]);
        assert!(by_recency::<u32>(vec![]).is_empty());
    }

    proptest! {
        #[test]
        fn nothing_is_added_or_lost_and_each_list_keeps_its_order(
            lengths in prop::collection::vec(0..40_usize, 0..5),
        ) {
            let list = |(number, length): (usize, &usize)| {
                (0..*length).map(|at| (number, at)).collect::<Vec<_>>()
            };
            let lists: Vec<_> = lengths.iter().enumerate().map(list).collect();
            let merged = by_recency(lists.clone());
            prop_assert_eq!(merged.len(), lengths.iter().sum::<usize>());
            for (number, expected) in lists.into_iter().enumerate() {
                let of_list = merged.iter().filter(|(list, _)| *list == number);
                prop_assert_eq!(of_list.copied().collect::<Vec<_>>(), expected);
            }
        }
    }
}
