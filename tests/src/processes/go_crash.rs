//! Crashes of Go programs, as their logs show them.

/// How a crash begins, always with the line: a panic that nothing recovered, or an error that Go's runtime found. A panic that was
/// recovered stands behind a time or a name where a program logs it.
const BEGINNINGS: [&str; 2] = ["panic: ", "fatal error: "];

/// How the trace of a goroutine begins. Without one, a line is a text that a program wrote itself.
const TRACE: &str = "goroutine ";

/// Lines that a crash may have before its trace: a signal, and the stack of the runtime.
const BEFORE_TRACE: usize = 100;

/// The crash of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crash<'a> {
    /// Line with the cause.
    pub(crate) cause: &'a str,
    /// The innermost function of the first trace, with its arguments.
    pub(crate) function: &'a str,
}

/// The crashes in a log. Traces without a crash are none: SIGQUIT and SIGABRT have them written.
pub(crate) fn crashes(log: &str) -> Vec<Crash<'_>> {
    let mut found = Vec::new();
    let mut lines = log.lines();
    while let Some(cause) = lines.next() {
        if !BEGINNINGS.iter().any(|beginning| cause.starts_with(beginning)) {
            continue;
        }
        let mut next = lines.clone().take(BEFORE_TRACE);
        if let Some(trace) = next.position(|line| line.starts_with(TRACE)) {
            // Two threads may find the same error: one crash, whose cause stands there twice.
            lines.nth(trace);
            let function = lines.next().unwrap_or_default();
            found.push(Crash { cause, function });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cause in function` of each crash.
    fn found(log: &str) -> Vec<(&str, &str)> {
        let crashes = crashes(log).into_iter();
        crashes.map(|crash| (crash.cause, crash.function)).collect()
    }

    #[test]
    fn a_panic_is_found_with_the_function_that_it_happened_in() {
        let log = "I1122 19:37:00 1 main.go:1] starting\n\
                   panic: assignment to entry in nil map [recovered, repanicked]\n\
                   \tpanic: again\n\
                   \n\
                   goroutine 12 [running]:\n\
                   main.work(0x1)\n\
                   \t/src/main.go:7 +0x1d\n";
        let cause = "panic: assignment to entry in nil map [recovered, repanicked]";
        assert_eq!(found(log), [(cause, "main.work(0x1)")]);
    }

    #[test]
    fn an_error_of_the_runtime_is_found_behind_its_own_stack() {
        let stack = "runtime.throw({0x1, 0x2})\n\t/go/src/runtime/panic.go:1 +0x1\n".repeat(40);
        let trace = "goroutine 1 gp=0xc000002380 m=0 [running]:\nmain.main()\n";
        let log = format!("fatal error: stack overflow\n\nruntime stack:\n{stack}\n{trace}");
        assert_eq!(found(&log), [("fatal error: stack overflow", "main.main()")]);
    }

    #[test]
    fn an_error_that_two_threads_find_is_one_crash_and_two_processes_have_two() {
        let error = "fatal error: concurrent map writes\n";
        let trace = "\ngoroutine 7 [running]:\ninternal/runtime/maps.fatal({0x1, 0x2})\n";
        let crash = format!("{error}{error}{trace}");
        assert_eq!(found(&crash).len(), 1);
        assert_eq!(found(&format!("{crash}started again\n{crash}")).len(), 2);
    }

    #[test]
    fn a_mention_of_a_panic_is_no_panic() {
        for harmless in [
            "panic: is a word that a program may write",
            "fatal error: is one, too\ngo on",
            "2026/11/22 19:37:00 http: panic serving 127.0.0.1:1: boom\ngoroutine 5 [running]:\nmain.f()",
            "E1122 19:37:00 1 runtime.go:79] Observed a panic: \"boom\"\ngoroutine 5 [running]:\npanic({0x1, 0x2})",
            "\tpanic: boom\n\ngoroutine 5 [running]:\nmain.f()",
            "SIGQUIT: quit\nPC=0x47 m=0 sigcode=0\n\ngoroutine 0 [idle]:\nruntime.futex()",
            "SIGABRT: abort\nPC=0x47 m=0 sigcode=0\n\ngoroutine 1 [select]:\nmain.main()",
        ] {
            assert_eq!(found(harmless), [], "{harmless}");
        }
        let far = format!(
            "panic: text\n{}goroutine 1 [running]:\nmain.f()\n",
            "line\n".repeat(200)
        );
        assert_eq!(found(&far), []);
    }
}
