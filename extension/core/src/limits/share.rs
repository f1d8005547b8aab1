//! How much one holder may have of something of which there is only so much.

/// Whether a holder of `own` of what is taken may take one more: the first one, and then no more than it leaves. So some remain after any
/// few holders have taken all they may.
#[must_use]
pub const fn may_have_more(own: usize, taken: usize, limit: usize) -> bool {
    let left = limit.saturating_sub(taken);
    left > 0 && (own == 0 || own < left)
}
