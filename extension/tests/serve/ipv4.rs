//! The process on a host without IPv6: a filter makes its system calls fail, as a kernel without IPv6 does.

use std::io;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::libc;
use rstest::rstest;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use serde_json::Value;

use crate::authority::{Authority, Mount};
use crate::replica::{Api, Replica};

/// A system call that fails.
#[derive(Clone, Copy)]
struct Failing {
    call: libc::c_long,
    /// Index of the argument that must be `value`.
    argument: u8,
    value: i32,
    error: i32,
}

/// `socket` of a kernel without IPv6.
const NO_SOCKETS: Failing = Failing {
    call: libc::SYS_socket,
    argument: 0,
    value: libc::AF_INET6,
    error: libc::EAFNOSUPPORT,
};

/// `bind` to an IPv6 address, whose size is 28 bytes, of a host without such addresses.
const NO_ADDRESSES: Failing = Failing {
    call: libc::SYS_bind,
    argument: 2,
    value: 28,
    error: libc::EADDRNOTAVAIL,
};

/// `setsockopt` of a socket of IPv6 that is to accept IPv4, too.
const NO_IPV4: Failing = Failing {
    call: libc::SYS_setsockopt,
    argument: 2,
    value: libc::IPV6_V6ONLY,
    error: libc::ENOPROTOOPT,
};

impl Failing {
    fn filter(self) -> BpfProgram {
        let Self {
            call,
            argument,
            value,
            error,
        } = self;
        let value = u64::from(value.unsigned_abs());
        let condition =
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value).unwrap();
        let rule = SeccompRule::new(vec![condition]).unwrap();
        let filter = SeccompFilter::new(
            [(call, vec![rule])].into(),
            SeccompAction::Allow,
            SeccompAction::Errno(error.unsigned_abs()),
            std::env::consts::ARCH.try_into().unwrap(),
        );
        filter.unwrap().try_into().unwrap()
    }

    /// Starts a process for which the call fails. A process inherits the filter of the thread that starts it.
    fn spawn(self, mut command: Command) -> io::Result<Child> {
        let thread = thread::spawn(move || {
            seccompiler::apply_filter(&self.filter()).unwrap();
            command.spawn()
        });
        thread.join().unwrap()
    }
}

#[rstest]
#[case::sockets(NO_SOCKETS)]
#[case::addresses(NO_ADDRESSES)]
#[tokio::test]
async fn without_ipv6_all_listeners_take_ipv4_and_the_log_says_so_once(#[case] failing: Failing) {
    let arguments = ["--health-addr", ":0", "--status-addr", ":0"];
    let mut replica = Replica::start_by(Api::Silent, &arguments, |command| failing.spawn(command)).await;

    let addresses = replica.addresses();
    assert_eq!(addresses.len(), 4);
    assert!(
        addresses
            .iter()
            .all(|address| address.ip() == Ipv4Addr::UNSPECIFIED),
        "{addresses:?}"
    );
    assert_eq!(replica.ask("one").await["status"], "Success");
    assert_eq!(replica.probe("/livez/runtime").await.0, 200);

    replica.terminate();
    assert!(replica.ended().await.success());
    let says_so = |line: &&Value| line["message"] == "Listening on IPv4 only, because the host has no IPv6";
    assert_eq!(replica.log().iter().filter(says_so).count(), 1);
}

#[rstest]
#[case::hooks("--webhook-host", "::")]
#[case::probes("--health-addr", "[::]:0")]
fn an_address_that_was_chosen_is_not_replaced(#[case] flag: &str, #[case] address: &str) {
    let last = refused(NO_SOCKETS, flag, address);
    assert!(
        last.starts_with("sluice: listen on [::]:0: ") && last.contains(flag),
        "{last}"
    );
}

/// Otherwise `net.ipv6.bindv6only` of the host decides. No test can set it, so this one observes the option.
#[test]
fn all_ipv6_addresses_include_ipv4() {
    let last = refused(NO_IPV4, "--webhook-host", "::");
    assert!(last.starts_with("sluice: listen on [::]:0: "), "{last}");
}

/// Returns the last line of the log of a process that does not start.
fn refused(failing: Failing, flag: &str, value: &str) -> String {
    let mount = Mount::new(&Authority::new().sign());
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command
        .args(["serve", "--webhook-port", "0", "--admission-port", "0"])
        .args([flag, value])
        .arg("--webhook-cert-dir")
        .arg(mount.path())
        .env_clear()
        .stderr(Stdio::piped());

    let output = failing.spawn(command).unwrap().wait_with_output().unwrap();

    assert_eq!(output.status.code(), Some(1));
    let log = String::from_utf8_lossy(&output.stderr);
    log.lines().last().unwrap().to_owned()
}
