//! What the kernel ends first when memory runs out.

use std::fs;
use std::io;

/// `oom_score_adj` of what the harness starts; 1,000 is the most. To raise it needs no privilege, and children inherit it.
pub(crate) const TAKEN_FIRST: u16 = 900;

/// Has the kernel end this process, and what it starts from now on, before others of the machine.
pub(crate) fn take_first(id: u32) -> io::Result<()> {
    fs::write(format!("/proc/{id}/oom_score_adj"), TAKEN_FIRST.to_string())
}
