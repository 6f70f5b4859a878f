//! The legs of queue pairs that take all [planes](super::planes) of their NIC, and whom each follows.

/// Legs and whom they follow, by sending half.
#[derive(Clone, Debug, Default)]
pub(super) struct Planes {
    pub leads: Vec<u32>,
    /// But for itself.
    pub legs: Vec<Vec<u32>>,
    /// The leg that sent last.
    pub last: Vec<u32>,
}

impl Planes {
    /// A sending half has been opened that leads itself and these legs.
    pub(super) fn open(&mut self, flow: u32, legs: Vec<u32>) {
        for leg in legs.iter().copied().chain([flow]) {
            let places = self.leads.len().max(leg as usize + 1);
            self.leads.resize(places, 0);
            self.legs.resize(places, Vec::new());
            self.last.resize(places, 0);
            self.leads[leg as usize] = flow;
        }
        self.legs[flow as usize] = legs;
        self.last[flow as usize] = flow;
    }

    /// The number of the leg after the one that sent last.
    pub(super) fn first_in_turn(&self, flow: u32) -> usize {
        let (legs, last) = (&self.legs[flow as usize], self.last[flow as usize]);
        let number = legs.iter().position(|&leg| leg == last).map_or(0, |place| place + 1);
        (number + 1) % (legs.len() + 1)
    }
}
