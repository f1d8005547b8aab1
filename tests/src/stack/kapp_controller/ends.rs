//! Known causes of an exit of kapp-controller 0.53.1.

use crate::processes::go_crash::{Crash, crashes};

/// Function of the only known and allowed crash: a defect of kapp-controller, which Sluice can neither cause nor prevent. A watch of
/// Packages wraps another watch of the same API server. If that watch fails, kapp-controller continues without it (`Watch` in
/// `package_storage_client.go` ignores errors), and this function dereferences a nil pointer.
const KNOWN_CRASH: &str =
    "carvel.dev/kapp-controller/pkg/apiserver/watchers.(*TranslationWatcher).proxyEvents(";

/// Last log line before it gives up.
const GAVE_UP: &str = "Exited run with error";

/// What it writes when its API is served and its work begins. Before that it gives up on any error: its API server is away, or its
/// APIService is written between its own read and write. A kubelet starts it again.
const BEGAN: &str = "starting manager";

/// The log of a process that ended by the known crash, as the function above writes it when it is called without a watch.
#[cfg(test)]
pub(crate) const CRASHED: &str = "\
{\"level\":\"info\",\"ts\":1.0,\"logger\":\"kc.controller\",\"msg\":\"starting manager\"}
panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x18 pc=0x6279aa]

goroutine 8 [running]:
carvel.dev/kapp-controller/pkg/apiserver/watchers.(*TranslationWatcher).proxyEvents(0x16c59a7cf0b0)
\tcarvel.dev/kapp-controller@v0.53.1/pkg/apiserver/watchers/translation_watcher.go:54 +0x2a
created by carvel.dev/kapp-controller/pkg/apiserver/watchers.NewTranslationWatcher in goroutine 1
\tcarvel.dev/kapp-controller@v0.53.1/pkg/apiserver/watchers/translation_watcher.go:36 +0x10f
";

/// Whether a log is that of a kapp-controller, not of its sidecar.
pub(crate) fn is_log(name: &str) -> bool {
    name.starts_with("kapp-") && !name.ends_with("-sidecar.log")
}

/// Whether this is the known crash.
pub(crate) fn is_known_crash(crash: &Crash<'_>) -> bool {
    crash.function.starts_with(KNOWN_CRASH)
}

/// Whether the log of one process shows a known cause of its end.
pub(crate) fn is_known_end(log: &str) -> bool {
    match crashes(log).last() {
        Some(crash) => is_known_crash(crash),
        None => log.contains(GAVE_UP) && !log.contains(BEGAN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN_UP: &str = r#"{"level":"error","logger":"kc.main","msg":"Exited run with error","error":"Starting API server: error getting APIService"}"#;

    #[test]
    fn the_known_crash_and_a_start_that_was_given_up_are_known() {
        assert!(is_known_end(CRASHED));
        assert!(is_known_end(GIVEN_UP));
    }

    #[test]
    fn every_other_end_is_not_known() {
        let crash_elsewhere = CRASHED.replace(").proxyEvents(", ").Stop(");
        let gave_up_later = format!("{{\"msg\":\"{BEGAN}\"}}\n{GIVEN_UP}\n");
        for log in [
            "",
            "{\"msg\":\"start controller\"}\n",
            "Killed\n",
            &crash_elsewhere,
            &gave_up_later,
        ] {
            assert!(!is_known_end(log), "{log}");
        }
    }
}
