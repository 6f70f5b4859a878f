//! Messages whose hosts have gone in mid-run.
//!
//! Their queue pairs are reset: nothing more is sent or sent again, and what is on its way goes on to its NIC, where nobody
//! waits for it; so the rest of the network sees packets that were sent, and no others. A sending half that is reset counts
//! as done once it stands on no ring of its NIC port; its place is used again when what it sent has left the network, as
//! any other's.
//!
//! A queue pair that also has a message of somebody who stays (two jobs on GPUs that share a NIC, with equal entropy) goes
//! on, and what it brings of the other's is thrown away.
//!
//! Failure modes: reductions in the network cannot be abandoned; the caller has none.

use rustc_hash::FxHashSet;
use windtunnel_kernel::Time;

use super::engine::Engine;
use super::engines::Engines;
use super::handles::QueuePair;
use super::packet_network::{BACKGROUND, NOBODY, PacketNetwork};
use super::reduce::Front;
use super::transport::Transport;
use crate::model::Arrival;

/// What was found of messages that go.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Queue pairs that have no others.
    pub pairs: Vec<QueuePair>,
    /// Messages on queue pairs that do.
    pub kept: Vec<u64>,
}

impl<T: Transport> Engine<T> {
    /// Adds what is awaited here of messages whose names are `gone`; `number` is this process.
    pub(super) fn find_gone(&self, number: u32, gone: &dyn Fn(u64) -> bool, found: &mut Found) {
        for (slot, receiver) in (0u32..).zip(&self.pairs.receivers) {
            let mut tokens = self.pairs.awaited(receiver);
            let Some(first) = tokens.next() else { continue };
            let (going, staying): (Vec<u64>, Vec<u64>) =
                std::iter::once(first).chain(tokens).partition(|&token| gone(token));
            if going.is_empty() {
                continue;
            }
            if staying.is_empty() {
                let homes = [self.home(receiver.sends_to()), number];
                found.pairs.push(QueuePair { sender: receiver.peer_slot, receiver: slot, homes });
            } else {
                found.kept.extend(going);
            }
        }
    }

    /// Resets a sending half at `now`.
    pub(super) fn reset_sender(&mut self, pair: QueuePair, now: u64) {
        let flow = pair.sender;
        // What came earlier is settled by the old state.
        self.pull_for(flow, now);
        self.dispatch_abandon(self.pairs.senders[flow as usize].port, flow, false);
        self.pairs.reset_sender(pair);
        if let Some(credits) = self.credits.get_mut() {
            credits.owe_nothing(flow);
        }
    }

    /// Resets a receiving half.
    pub(super) fn reset_receiver(&mut self, flow: u32) {
        self.dispatch_abandon(self.pairs.receivers[flow as usize].at(), flow, true);
        self.pairs.reset_receiver(flow);
        if let Some(credits) = self.credits.get_mut() {
            credits.forgo(flow);
        }
    }
}

impl<T: Transport> Engines<T> {
    /// Resets the queue pairs of messages whose names are `gone`, at `now`, up to which everything has been handled.
    pub(super) fn abandon(&mut self, now: Time, gone: &dyn Fn(u64) -> bool) -> Found {
        let (mut found, mut number) = (Found::default(), 0);
        self.look(|engine| {
            engine.find_gone(number, gone, &mut found);
            number += 1;
        });
        for &pair in &found.pairs {
            self.at_home(pair.homes[0], |engine| engine.reset_sender(pair, now.ps()));
            self.at_home(pair.homes[1], |engine| engine.reset_receiver(pair.receiver));
        }
        found
    }
}

impl<T: Transport> PacketNetwork<T> {
    /// See [`Network::abandon`](crate::Network::abandon).
    pub(super) fn take_gone(&mut self, gone: &dyn Fn(Arrival) -> bool) -> Vec<Arrival> {
        let mut names = self.inside.take_gone(gone);
        let free: FxHashSet<u32> = self.free.iter().copied().collect();
        let goes = |slot: &u32| {
            let message = self.messages[*slot as usize].message;
            !free.contains(slot) && message != NOBODY && gone(Arrival::Message { message })
        };
        let slots: Vec<u32> = (0..self.messages.len() as u32).filter(goes).collect();
        names.extend(
            slots.iter().map(|&slot| Arrival::Message { message: self.messages[slot as usize].message }),
        );
        let of_one = |token: u64| {
            token & BACKGROUND == 0 && !Front::owns(token) && slots.binary_search(&(token as u32)).is_ok()
        };
        self.handed.retain(|completion| !of_one(completion.token));
        let found = self.engine.abandon(self.clock, &of_one);
        self.pairs.retain(|_, pair| !found.pairs.contains(pair));
        for &slot in slots.iter().rev() {
            let parts = found.kept.iter().filter(|&&token| token as u32 == slot).count() as u32;
            if parts == 0 {
                self.free.push(slot);
            } else {
                let left = &mut self.messages[slot as usize];
                (left.message, left.parts) = (NOBODY, parts);
            }
        }
        names
    }
}
