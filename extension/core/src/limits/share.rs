//! Fair share of a limited resource.

/// Returns whether a holder of `own` units may take one more. A holder may always take a first unit, and then no more than it leaves free.
/// So units remain after a few holders have taken their maximum.
#[must_use]
pub const fn may_have_more(own: usize, taken: usize, limit: usize) -> bool {
    let left = limit.saturating_sub(taken);
    left > 0 && (own == 0 || own < left)
}
