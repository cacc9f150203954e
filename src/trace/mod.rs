//! The trace: a run's evidence, as JSON lines that are each chained to the one before.
//!
//! Producers hand an [`Event`] to the [`Recorder`]; one writer thread numbers it, chains it and appends one line.
//! Bodies lie beside the trace, named by their SHA-256. A [`Placement`] says where all of that is while the run
//! lasts, and puts it in place afterwards. [`Reader`] and [`verify()`] read any trace in constant memory.
//!
//! Order of use: [`Placement::plan`] → [`create`] → [`Recorder::record`] … → [`WriterHandle::seal`].

pub mod brief;
pub mod canonical;
pub mod escape;
pub mod layout;
pub mod redact;

mod ballast;
mod blob;
mod blob_check;
mod chain;
mod effect;
mod error;
mod event;
mod fold;
mod held;
mod mentions;
mod observation;
mod opened;
mod pack;
mod placement;
mod queue;
mod reader;
mod recorder;
mod scan;
mod space;
mod stored;
mod tally;
mod tamper;
mod turn;
mod ustar;
mod verify;
mod writer;

pub use blob::{BlobRef, BlobWriter, BodyRef};
pub use effect::{Effect, Members};
pub use error::TraceError;
pub use event::{Event, Kind, display_bytes, hex, path_value, unhex};
pub use held::Held;
pub use mentions::is_sha256;
pub use observation::{Observation, Text};
pub use opened::{Opened, open};
pub use pack::{Packed, pack, unpack};
pub use placement::{
    FileIdentity, Placed, Placement, Protected, Reach, Recovered, Scratch, is_known_head, list_of_heads,
    locate, recover_pending, remember_head, traces_beside,
};
pub use queue::Promise;
pub use reader::{Line, Reader};
pub use recorder::{Recorder, Watch};
pub use scan::{BlobMention, Fields, Malformed, Scanner, looks_like_a_trace};
pub use stored::StoredBlobs;
pub use tally::{Denial, Denials, Totals};
pub use tamper::Tamper;
pub use turn::Turn;
pub use ustar::Fault;
pub use verify::{Expectation, Outcome, Verification, verify};
pub use writer::{Closing, WriterHandle, create};
