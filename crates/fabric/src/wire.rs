//! What packets are like on the wire where nobody says otherwise. Every network model and the scenario's schema take their
//! defaults from here, so a program that calls a model by itself simulates the packets that a scenario's user gets.

use windtunnel_kernel::Bytes;

/// A full packet, its header included.
pub const MTU: Bytes = Bytes::new(4_150);

/// The header of a data packet.
pub const HEADER: Bytes = Bytes::new(66);

/// A control packet, such as an acknowledgement.
pub const CONTROL: Bytes = Bytes::new(64);

/// Data packets of a queue pair that one acknowledgement answers.
pub const ACK_EVERY: u32 = 4;
