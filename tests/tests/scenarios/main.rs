//! Scenarios on the real stack: real Cluster API, real API servers, real kapp-controllers, the release binary of Sluice.

mod back_and_forth;
mod bootstrap_edited;
mod broken_package;
mod chained;
mod common;
mod configured;
mod create;
mod deletion;
mod false_ready;
mod harness_installs;
mod killed;
mod minor_upgrade;
mod moved;
mod observer_catches;
mod order_of_edits;
mod package_stopped;
mod paused;
mod removed_api;
mod resync;
mod stage_zero;
mod third_party;
mod twenty;
mod unmanaged;
mod workers;
mod workload_away;

use std::process::ExitCode;

fn main() -> ExitCode {
    sluice_tests::scenario::main(&[
        // The longest one first, so that others run beside it.
        false_ready::scenario(),
        harness_installs::scenario(),
        observer_catches::scenario(),
        create::scenario(),
        configured::scenario(),
        third_party::scenario(),
        minor_upgrade::scenario(),
        broken_package::scenario(),
        removed_api::scenario(),
        order_of_edits::scenario(),
        workload_away::silent(),
        workload_away::swapped(),
        stage_zero::scenario(),
        stage_zero::restarted(),
        stage_zero::installer_restarted(),
        moved::scenario(),
        bootstrap_edited::edited(),
        bootstrap_edited::deleted(),
        paused::scenario(),
        back_and_forth::scenario(),
        deletion::scenario(),
        workers::only(),
        workers::slow_control_plane(),
        resync::scenario(),
        unmanaged::scenario(),
        chained::scenario(),
        chained::workers_too(),
        killed::killed(),
        killed::outage(),
        package_stopped::stopped(),
        package_stopped::values(),
        deletion::of_namespace(),
        twenty::scenario(),
    ])
}
