//! What the process shows of itself.

use crate::replica::{Api, Replica, ask};

/// More lines than a pipe that is not read takes, many times.
const MORE_LINES: usize = 1_500;

#[tokio::test]
async fn a_log_that_is_not_read_stalls_nothing() {
    let mut replica = Replica::start(Api::Empty, &["--v", "4"]).await;
    replica.until("/livez/reconciler", 200).await;
    let mut connection = replica.connect().await;

    for number in 0..MORE_LINES {
        ask(&mut connection, &format!("cluster-{number}")).await;
    }

    let (status, text) = replica.probe("/livez").await;
    assert_eq!(status, 200, "{text}");
    let (_, metrics) = replica.probe("/metrics").await;
    assert!(metrics.contains("sluice_log_lines_dropped_total "), "{metrics}");
    replica.terminate();
    assert!(replica.ended().await.success());
}
