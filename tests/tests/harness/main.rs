//! The harness itself: real components come up, and nothing stays behind. Nothing here judges the product.

mod cleanup;
mod cold_cache;
mod first_run;
mod gates;
mod missing;
mod pause_flow;
mod stack;
mod support;
mod upgrading;
