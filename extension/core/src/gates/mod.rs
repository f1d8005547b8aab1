//! Gates of add-ons that are no packages: UpgradeGates.

pub mod record;
