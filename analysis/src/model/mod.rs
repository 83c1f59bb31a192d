//! Device models: the time of a request on a kind of disk, with its queue and its cache.

mod arm;
mod array;
mod geometry;
mod solid;
mod spec;

use crate::delays::Kind;
use anyhow::{Context, Result, ensure};
use array::Array;
use solid::Solid;
use spec::Spec;
use std::time::Duration;

/// A device with the times of its model; requests of several threads are in its queue at once.
#[derive(Debug)]
pub enum Model {
    /// Disks with arms and platters.
    Rotating(Array),
    /// Flash, or a volume of a cloud.
    Solid(Box<Solid>),
}

impl Model {
    /// Read a model from JSON; `bytes` is the size of the device.
    pub fn new(json: &str, bytes: u64) -> Result<Self> {
        ensure!(bytes > 0, "a device model needs a device that is not empty");
        Ok(
            match serde_json::from_str(json).context("the device model")? {
                Spec::Rotating(spec) => Self::Rotating(Array::new(&spec, bytes)?),
                Spec::Solid(spec) => Self::Solid(Box::new(Solid::new(spec)?)),
            },
        )
    }

    /// Block until the device has done a request; `path` is the time of the way to us and back.
    pub fn serve(&self, kind: Kind, offset: u64, bytes: u64, path: Duration) {
        match self {
            Self::Rotating(array) => array.serve(kind, offset, bytes),
            Self::Solid(solid) => solid.serve(kind, bytes, path),
        }
    }
}
