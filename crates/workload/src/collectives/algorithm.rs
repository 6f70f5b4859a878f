//! The algorithms: a line each, with the type that is its [`Method`](super::method::Method).
//!
//! The table stands below all that works with algorithms, so it names types that it does not know: they are looked up where
//! a macro is handed the table, in `dispatch.rs`. Here it makes the enum alone.

/// Hands the table of algorithms to the macro `$then`.
macro_rules! algorithms {
    ($then:ident) => {
        $then! {
            #[default]
            Auto: tuner::Auto;
            Ring: ring::Ring;
            DoubleBinaryTree: tree::DoubleBinaryTree;
            Recursive: recursive::Recursive;
            Bruck: bruck::Bruck;
            Pat: pat::Pat;
            Binomial: binomial::Binomial;
            Direct: all_to_all::Direct;
            Pairwise: all_to_all::Pairwise;
            MultiRing: multi_ring::MultiRing;
            Hierarchical: hierarchical::Hierarchical;
            InNetwork: in_network::InNetwork;
        }
    };
}

pub(super) use algorithms;

macro_rules! members {
    ($($(#[$attribute:meta])* $member:ident: $method:ty;)+) => {
        /// How a collective is done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
        pub enum Algorithm {
            $(#[doc = concat!("See `", stringify!($method), "`.")] $(#[$attribute])* $member,)+
        }

        impl Algorithm {
            /// All, in the order in which they are listed.
            pub const ALL: [Self; [$(stringify!($member)),+].len()] = [$(Self::$member),+];
        }
    };
}

algorithms!(members);
