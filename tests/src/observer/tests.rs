//! The judgement on constructed sequences: each shows one way of being early, or of not being it.

mod answer;
mod exceptions;
mod flux;
mod gates;
mod overrides;
mod placed;
mod proof;
mod release_data;
mod reproof;
mod rollback;
mod story;
mod values;
mod workers;
