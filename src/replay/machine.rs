//! What the recorded run was told of its machine, put together from its entries.

use serde_json::{Map, Value};

use super::initial::path_of;
use crate::supervisor::{LONGEST_MACHINE_FILE, MACHINE, RecordedMachine};
use crate::trace::StoredBlobs;

/// Takes what an entry says of the machine into `machine`; entries come in their order.
///
/// # Errors
/// When the body cannot be read.
pub(super) fn add(
    machine: &mut RecordedMachine,
    entry: &Map<String, Value>,
    blobs: &StoredBlobs,
) -> std::io::Result<()> {
    let said = |name: &str| entry.get(name).and_then(Value::as_str);
    let (Some(MACHINE), Some(Value::Object(args))) = (said("op"), entry.get("args")) else { return Ok(()) };
    let content = match args.get("content") {
        Some(Value::String(text)) => text.clone().into_bytes(),
        Some(reference) => {
            let sha256 = reference.get("blob").and_then(Value::as_str).unwrap_or_default();
            blobs.read(sha256, LONGEST_MACHINE_FILE)?
        }
        None => {
            if let Some(path) = path_of(args, "path") {
                let is_cut = args.get("cut").is_some_and(|cut| cut == true);
                machine.add_missing(path, said("proc").unwrap_or_default(), is_cut);
            }
            return Ok(());
        }
    };
    if let Some(path) = path_of(args, "path") {
        machine.add(path, said("proc").unwrap_or_default(), content);
    }
    Ok(())
}
