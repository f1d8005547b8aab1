//! Deadlines: durations of the form `1h30m`.

use std::time::Duration;

/// Reads hours, minutes and seconds, `1h30m`; `None` if the text has another form.
///
/// kube's own reader of such durations is not used: it panics on a number that is too large.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    if text.is_empty() {
        return None;
    }
    let (mut rest, mut seconds) = (text, 0_u64);
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(['h', 'm', 's'])?);
        let unit = match after.as_bytes() {
            [b'h', ..] => 3600,
            [b'm', ..] => 60,
            _ => 1,
        };
        seconds = seconds.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        rest = &after[1..];
    }
    Some(Duration::from_secs(seconds))
}
