//! Experts' dispatchers (DeepEP, HybridEP): a token goes once to a scale-up domain and once to a GPU there, whatever number of
//! its experts live on them, carried by a few SMs.
//!
//! Of T tokens of a rank, each of h bytes, with `top_k` of `experts` drawn without bias: a token has an expert on one of g equal
//! parts of the experts with probability p(g) = 1 − C(E − E/g, k) / C(E, k). It is sent to g·p(g) GPUs of g, and over the
//! network to (1 − 1/D)·D·p(D) of D domains. Three things go on side by side, and the longest counts:
//!
//! - SMs read each token, write it once to each GPU, and pass on what comes from and goes to other domains;
//! - scale-up links carry what goes to the domain's other GPUs;
//! - NICs carry what goes to other domains.
//!
//! Before that passes a launch, in which ranks tell each other how much will come.
//!
//! Invariants: pure functions; more experts chosen, more tokens or fewer SMs never take less.
//! Source of the method: github.com/deepseek-ai/DeepEP (README, docs/legacy.md); the constants are in `data/dispatchers`
//! (`windtunnel calibrate dispatchers`).

use serde::Deserialize;
use windtunnel_kernel::math;

/// How tokens are routed, and what carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routing {
    /// Experts over all ranks.
    pub experts: u32,
    /// Experts of a token.
    pub top_k: u32,
    /// Domains that a token's experts are on at most (node-limited routing); 0: any.
    #[serde(default)]
    pub domains: u32,
    /// SMs that carry tokens.
    pub sms: u32,
    /// Whether experts' results go back to be summed, rather than tokens out to experts.
    #[serde(default)]
    pub combine: bool,
}

/// One way's constants.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Launch in a domain, seconds.
    pub start: f64,
    /// What each doubling of the domains adds, seconds.
    pub doubling: f64,
    /// What an SM carries, bytes per second.
    pub sm: f64,
    /// Work of SMs for a rank's own token over that for a copy.
    pub own: f64,
    /// The same for a token that crosses domains.
    pub crossing: f64,
}

/// A dispatcher's constants; the default is what `windtunnel calibrate dispatchers` begins with.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constants {
    /// Out to experts.
    pub dispatch: Way,
    /// Back from them.
    pub combine: Way,
}

impl Default for Constants {
    fn default() -> Self {
        let way = Way { start: 30e-6, doubling: 10e-6, sm: 20e9, own: 1.0, crossing: 1.0 };
        Self { dispatch: way, combine: way }
    }
}

/// Share that it reaches of the payload of links inside a domain, and of the rate of NICs: H100's, in `aic_deepep.csv.gz`.
const LINK: f64 = 0.75;
const NETWORK: f64 = 0.93;

/// What a dispatch or a combination takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Carried {
    /// Before the first byte, seconds.
    pub before: f64,
    /// While bytes move, seconds.
    pub moving: f64,
}

/// Where tokens travel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Among {
    /// Scale-up domains.
    pub domains: u32,
    /// Ranks in all of them.
    pub ranks: u32,
    /// Payload that a GPU sends inside a domain, bytes per second.
    pub scale_up: f64,
    /// The same out of it.
    pub network: f64,
}

impl Routing {
    /// The chance that a token has an expert on one of `parts` equal parts of `experts`.
    fn reached(self, experts: f64, parts: f64) -> f64 {
        let each = experts / parts;
        let missed: f64 = (0..self.top_k)
            .map(|drawn| {
                let left = experts - f64::from(drawn);
                if left > 0.0 { ((left - each) / left).max(0.0) } else { 0.0 }
            })
            .product();
        1.0 - missed
    }

    /// Domains that a token's experts are on, of `domains`; and GPUs, of `ranks`.
    pub fn copies(self, domains: u32, ranks: u32) -> (f64, f64) {
        let (all, ranks) = (f64::from(domains.max(1)), f64::from(ranks.max(1)));
        let within = if self.domains > 0 { all.min(f64::from(self.domains)) } else { all };
        // Within its domains a token has the same number of experts to choose, of fewer.
        let experts = f64::from(self.experts) * within / all;
        let gpus = ranks * within / all;
        (within * self.reached(experts, within), gpus * self.reached(experts, gpus))
    }

    /// What all-to-all's buffer would be if each pair's share were what a rank now sends over the network (of one domain: to
    /// its GPUs), of `bytes` for a copy for every chosen expert.
    pub fn buffer(self, bytes: u64, domains: u32, ranks: u32) -> u64 {
        let (hosts, gpus) = self.copies(domains, ranks);
        let copies = if domains > 1 { hosts } else { gpus };
        ((bytes as f64 * copies / f64::from(self.top_k.max(1))).round() as u64).max(1)
    }

    /// What a rank's `bytes`, a copy for each of a token's experts, take.
    pub fn carried(self, bytes: u64, among: Among, constants: &Constants) -> Carried {
        let way = if self.combine { constants.combine } else { constants.dispatch };
        let Among { domains, ranks, scale_up, network } = among;
        let tokens = bytes as f64 / f64::from(self.top_k.max(1));
        let (hosts, gpus) = self.copies(domains, ranks);
        let all = f64::from(domains.max(1));
        let inside = f64::from(ranks.max(1)) / all;
        let crossing = hosts * (1.0 - 1.0 / all);
        let worked = tokens * (way.own + gpus + way.crossing * crossing);
        let by_sms = worked / (f64::from(self.sms.max(1)) * way.sm);
        let by_links = tokens * gpus * (1.0 - 1.0 / inside) / (LINK * scale_up);
        let by_network = if crossing > 0.0 { tokens * crossing / (NETWORK * network) } else { 0.0 };
        Carried {
            before: way.start + way.doubling * math::log2(all),
            moving: by_sms.max(by_links).max(by_network),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEEPSEEK: Routing = Routing { experts: 256, top_k: 8, domains: 0, sms: 24, combine: false };

    #[test]
    fn a_token_goes_once_to_a_host_and_once_to_a_gpu() {
        // Every choice of two experts of four, on two hosts of two GPUs: by counting.
        let routing = Routing { experts: 4, top_k: 2, ..DEEPSEEK };
        let (mut hosts, mut gpus, mut choices) = (0, 0, 0);
        for a in 0..4u32 {
            for b in 0..4 {
                if a != b {
                    hosts += if a / 2 == b / 2 { 1 } else { 2 };
                    gpus += 2;
                    choices += 1;
                }
            }
        }
        let (found_hosts, found_gpus) = routing.copies(2, 4);
        assert!((found_hosts - f64::from(hosts) / f64::from(choices)).abs() < 1e-12);
        assert!((found_gpus - f64::from(gpus) / f64::from(choices)).abs() < 1e-12);
        // One host: once. All experts on every host: to all.
        assert_eq!(DEEPSEEK.copies(1, 1), (1.0, 1.0));
        assert!((Routing { top_k: 256, ..DEEPSEEK }.copies(8, 64).0 - 8.0).abs() < 1e-12);
        // DeepSeek-V3's limit of four of eight hosts.
        let (limited, _) = Routing { domains: 4, ..DEEPSEEK }.copies(8, 64);
        assert!(limited < 4.0 && limited < DEEPSEEK.copies(8, 64).0, "{limited}");
    }

    #[test]
    fn networks_bound_it_between_hosts_and_sms_inside() {
        let constants = Constants::default();
        let bytes = 131_072 * 7_168 * 8;
        let time = |routing: Routing, domains: u32| {
            let among = Among { domains, ranks: 8 * domains, scale_up: 371e9, network: 50e9 };
            let found = routing.carried(bytes, among, &constants);
            found.before + found.moving
        };
        // On four hosts NICs are busy all the time: 2.7 of three other hosts have one of a token's experts.
        let (hosts, _) = DEEPSEEK.copies(4, 32);
        let sent = 131_072.0 * 7_168.0 * hosts * 0.75 / (0.93 * 50e9);
        assert!((time(DEEPSEEK, 4) - 50e-6 - sent).abs() < 1e-9, "{}", time(DEEPSEEK, 4));
        let few = time(Routing { sms: 4, ..DEEPSEEK }, 1);
        assert!((few / time(Routing { sms: 8, ..DEEPSEEK }, 1) - 2.0).abs() < 0.02);
        for (more, less) in [
            (Routing { top_k: 9, ..DEEPSEEK }, Routing { top_k: 9, domains: 2, ..DEEPSEEK }),
            (Routing { sms: 8, ..DEEPSEEK }, DEEPSEEK),
        ] {
            for domains in [1, 2, 4, 8, 32] {
                assert!(time(more, domains) >= time(less, domains), "{more:?} {domains}");
            }
        }
        // What the buffer of an all-to-all would be.
        assert_eq!(DEEPSEEK.buffer(bytes, 4, 32), (bytes as f64 * hosts / 8.0).round() as u64);
    }
}
