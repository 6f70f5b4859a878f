//! When credit is granted: what the events of [`credit`](super::credit) do at NIC ports.

use super::credit::Granted;
use super::engine::Engine;
use super::packets::Packet;
use super::timeline::Class;
use super::transport::Transport;

impl<T: Transport> Engine<T> {
    /// A data packet has arrived at NIC port `p`, whole or `trimmed` and not known before: its queue pair may want credit.
    pub(super) fn want(&mut self, packet: &Packet, p: u32, trimmed: bool, now: u64) {
        let mtu = self.settings.mtu.get();
        let Some(credits) = self.credits.get_mut() else { return };
        credits.saw(p, packet, now);
        if let Some(granted) = credits.want(packet, p, trimmed, mtu) {
            self.send_pull(packet.flow, granted, now);
        }
        self.arm_pacer(p, now);
    }

    /// Lets NIC port `p` grant as soon as it may, if somebody wants it.
    fn arm_pacer(&mut self, p: u32, now: u64) {
        if let Some(due) = self.credits.get_mut().and_then(|credits| credits.arm(p, now)) {
            self.timeline.schedule(due, Class::Credit, p);
        }
    }

    /// NIC port `p` may grant.
    pub(super) fn grant(&mut self, p: u32, now: u64) {
        let mtu = self.settings.mtu.get();
        let granted = self.credits.get_mut().and_then(|credits| credits.grant(p, now, mtu));
        let Some(Granted { flow, bytes, all }) = granted else { return };
        self.account.totals.grants += 1;
        self.account.totals.credit += bytes;
        self.send_pull(flow, all, now);
        self.arm_pacer(p, now);
    }

    /// A PULL has reached the sending half.
    pub(super) fn pulled(&mut self, id: u32, now: u64) {
        self.account.totals.notices += 1;
        let Packet { flow, stamp, .. } = self.packets[id];
        self.packets.release(id);
        let sender = &mut self.pairs.senders[flow as usize];
        sender.control_gone += 1;
        if sender.retired {
            return;
        }
        sender.heard(now);
        self.pull_for(flow, now);
        if let Some(credits) = self.credits.get_mut() {
            credits.fill(flow, stamp);
        }
        self.ready(flow, now);
    }
}
