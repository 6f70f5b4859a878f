//! The built-in transports: the table of them, and one of them chosen at run time with its parameters.

use std::sync::Arc;

use windtunnel_kernel::Span;
use windtunnel_kernel::registry::Entry;
use windtunnel_topology::Topology;

use super::error::PacketError;
use super::model::NetworkOf;
use super::packet_network::PacketNetworkError;
use super::settings::PacketSettings;
use super::transport::{
    Around, Bbr, BuiltIn, Cubic, DcPim, Dcqcn, Dcsim, Dctcp, Dispatcher, Eqds, ExpressPass, Homa, Hpcc,
    MpRdma, Mrc, Ndp, NewReno, NoTransport, Nscc, PFabric, PHost, Parameter, Place, Rccc, Recovery, Sird,
    Swift, Transport, Unfit,
};
use crate::model::Network;
use crate::reroute::SharedRerouter;

/// A built-in transport, whichever it is.
trait Known: NetworkOf {
    fn parameters(&self) -> &'static [Parameter];
    fn place(&mut self, key: &str) -> Option<Place<'_>>;
    fn check_parameters(&self) -> Result<(), Unfit>;
    fn recovery_mut(&mut self) -> &mut Recovery;
    fn timeout_mut(&mut self) -> &mut Span;
}

impl<T: BuiltIn> Known for T {
    fn parameters(&self) -> &'static [Parameter] {
        T::PARAMETERS
    }

    fn place(&mut self, key: &str) -> Option<Place<'_>> {
        self.place(key)
    }

    fn check_parameters(&self) -> Result<(), Unfit> {
        self.check_parameters()
    }

    fn recovery_mut(&mut self) -> &mut Recovery {
        self.recovery_mut()
    }

    fn timeout_mut(&mut self) -> &mut Span {
        self.timeout_mut()
    }
}

/// Declares [`TransportChoice`]: a line for each transport. What is said of it stands in its own file ([`BuiltIn`]).
macro_rules! transports {
    ($($member:ident($type:ident),)+) => {
        /// A built-in transport with its parameters.
        #[derive(Clone, Debug, PartialEq)]
        pub enum TransportChoice {
            $(#[doc = concat!("See [`", stringify!($type), "`].")] $member($type),)+
        }

        impl TransportChoice {
            /// What is said of each, in the order in which they are listed.
            pub const ENTRIES: [Entry; [$(<$type as Transport>::NAME),+].len()] =
                [$(Entry::new(<$type as Transport>::NAME, $type::SUMMARY)),+];

            /// Names that [`Self::by_name`] knows.
            pub const NAMES: [&'static str; Self::ENTRIES.len()] = [$(<$type as Transport>::NAME),+];

            /// The names of their congestion laws, in the same order.
            pub const LAWS: [&'static str; Self::ENTRIES.len()] = [$($type::LAW),+];

            /// All with their default parameters, in the same order.
            pub fn all() -> [Self; Self::ENTRIES.len()] {
                [$(Self::$member($type::default())),+]
            }

            /// This transport with what is put around it.
            pub fn within(&self, around: &impl Around) -> Arc<dyn NetworkOf> {
                match self {
                    $(Self::$member(transport) => Arc::new(around.around(*transport)),)+
                }
            }

            /// Whether it schedules whole NIC ports, and mends losses by rules of its own.
            pub const fn is_dispatched(&self) -> bool {
                match self {
                    $(Self::$member(_) => !<<$type as Transport>::Dispatcher as Dispatcher>::NAME.is_empty(),)+
                }
            }

            /// Whether it draws the path of each packet itself, whatever path numbers there are.
            pub const fn draws_paths(&self) -> bool {
                match self {
                    $(Self::$member(_) => <<$type as Transport>::Dispatcher as Dispatcher>::DRAWS_PATHS,)+
                }
            }

            /// Whether its packets take paths of their own one by one where the scenario does not say how paths are chosen.
            pub const fn sprays(&self) -> bool {
                match self {
                    $(Self::$member(_) => <<$type as Transport>::Dispatcher as Dispatcher>::SPRAYS,)+
                }
            }

            fn known(&self) -> &dyn Known {
                match self {
                    $(Self::$member(transport) => transport,)+
                }
            }

            fn known_mut(&mut self) -> &mut dyn Known {
                match self {
                    $(Self::$member(transport) => transport,)+
                }
            }
        }
    };
}

transports! {
    None(NoTransport),
    Dcqcn(Dcqcn),
    Dctcp(Dctcp),
    Swift(Swift),
    NewReno(NewReno),
    Cubic(Cubic),
    Bbr(Bbr),
    MpRdma(MpRdma),
    Uec(Nscc),
    Rccc(Rccc),
    Hpcc(Hpcc),
    Ndp(Ndp),
    Eqds(Eqds),
    Dcsim(Dcsim),
    Mrc(Mrc),
    PHost(PHost),
    PFabric(PFabric),
    DcPim(DcPim),
    Homa(Homa),
    ExpressPass(ExpressPass),
    Sird(Sird),
}

impl TransportChoice {
    /// The transport of a name with its default parameters.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().position(|known| *known == name).map(|place| Self::all()[place].clone())
    }

    /// The transport whose congestion law has this name, with its default parameters.
    pub fn by_law(law: &str) -> Option<Self> {
        Self::LAWS.iter().position(|known| *known == law).map(|place| Self::all()[place].clone())
    }

    /// The parameters that a scenario may change, beside those of all.
    pub fn parameters(&self) -> &'static [Parameter] {
        self.known().parameters()
    }

    /// Where the parameter `key` is kept; `None` if there is none.
    pub fn place(&mut self, key: &str) -> Option<Place<'_>> {
        self.known_mut().place(key)
    }

    /// # Errors
    /// [`Unfit`] for a parameter that does not go with another.
    pub fn check_parameters(&self) -> Result<(), Unfit> {
        self.known().check_parameters()
    }

    /// This transport with another least time-out, if one is given.
    #[must_use]
    pub fn patient(mut self, timeout: Option<Span>) -> Self {
        if let Some(timeout) = timeout {
            *self.known_mut().timeout_mut() = timeout;
        }
        self
    }

    /// How it mends losses.
    pub fn recovery(&self) -> Recovery {
        *self.clone().known_mut().recovery_mut()
    }

    /// This transport with another way of mending losses.
    #[must_use]
    pub fn mending(mut self, recovery: Recovery) -> Self {
        *self.known_mut().recovery_mut() = recovery;
        self
    }
}

impl NetworkOf for TransportChoice {
    fn network(
        &self,
        topology: Arc<Topology>,
        settings: PacketSettings,
        rerouter: Option<SharedRerouter>,
    ) -> Result<Box<dyn Network>, PacketNetworkError> {
        self.known().network(topology, settings, rerouter)
    }

    fn check(&self, settings: &PacketSettings) -> Result<(), PacketError> {
        self.known().check(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every parameter that is listed has a place of its own, and no transport has two of one key.
    #[test]
    fn every_parameter_has_its_place() {
        for (mut transport, name) in TransportChoice::all().into_iter().zip(TransportChoice::NAMES) {
            let parameters = transport.parameters();
            let default = transport.clone();
            for (index, parameter) in parameters.iter().enumerate() {
                assert!(parameters[..index].iter().all(|known| known.key != parameter.key), "{name}");
                match transport.place(parameter.key).expect(parameter.key) {
                    Place::Part(value) | Place::Positive(value) | Place::Any(value) => *value = 0.123,
                    Place::Count(value) => *value = 7_777,
                    Place::Packets(value) => *value = Some(7_777),
                    Place::Flag(value) => *value = !*value,
                    Place::Word(word) => word.at = (word.at + 1) % word.of.len(),
                    Place::Time(value) => *value = Span::from_ns(123),
                    Place::Given(value) => *value = Some(Span::from_ns(123)),
                }
                let changed = std::mem::replace(&mut transport, default.clone());
                assert_ne!(changed, default, "{name}.{}", parameter.key);
            }
            assert!(transport.place("no such key").is_none());
        }
    }

    #[test]
    fn names_and_laws_find_their_transports() {
        for (name, law) in TransportChoice::NAMES.into_iter().zip(TransportChoice::LAWS) {
            assert!(TransportChoice::by_name(name).is_some());
            assert_eq!(TransportChoice::by_name(name), TransportChoice::by_law(law));
        }
        assert!(TransportChoice::by_law("uec").is_none() && TransportChoice::by_name("nscc").is_none());
    }
}
