//! Programs that would have the guard wait: what one of them does holds up none of the others.

use crate::escape::compiled;
use crate::support::{copy_program, everyone, has, skip};

#[test]
fn a_socket_that_is_changed_while_it_is_connected_holds_nobody_up() {
    if !has("gcc") {
        return skip("gcc", "it is not installed");
    }
    everyone(|sandbox| {
        // With rules for the network, and without.
        for further in ["", "net: a.invalid\n"] {
            sandbox.policy(&format!("read: .\nexec: ./guest\n{further}"));
            copy_program(compiled("stall"), sandbox.path("guest"));
            for what in ["timeout", "blocking"] {
                sandbox.run(&["./guest", what]).exits(0).prints("went on\n");
            }
        }
    });
}
