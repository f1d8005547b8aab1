//! Order in which the kernel kills processes when memory runs out.

use std::fs;
use std::io;

/// `oom_score_adj` of processes of the harness; the maximum is 1,000. Raising it needs no privilege, and children inherit it.
pub(crate) const TAKEN_FIRST: u16 = 900;

/// Makes the kernel kill this process and its later children before others.
pub(crate) fn take_first(id: u32) -> io::Result<()> {
    fs::write(format!("/proc/{id}/oom_score_adj"), TAKEN_FIRST.to_string())
}
