//! Recordings of kapp-controller, replayed through the proof.

mod interrupted;
mod replay;
