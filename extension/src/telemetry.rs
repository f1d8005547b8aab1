//! The log of the process.

use tracing_subscriber::{EnvFilter, fmt};

use crate::cli::LogFormat;

/// Starts logging to standard error. `RUST_LOG` wins over `verbosity` (0 errors … 5 everything).
pub fn init(format: LogFormat, verbosity: u8) {
    let level = match verbosity {
        0 => "error",
        1 => "warn",
        2 | 3 => "info",
        4 => "debug",
        _ => "trace",
    };
    // kube logs each failed try as an error; what failed and what follows from it is said by the caller.
    let own = format!("warn,kube_client=off,sluice={level},sluice_hooks={level},sluice_core={level}");
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(own));
    let builder = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    match format {
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .init(),
        LogFormat::Text => builder.init(),
    }
}
