use crate::StoreError;
use crate::address::StoreAddress;
use crate::connection::Access;
use crate::domain;
use crate::store::StoreOptions;
use crate::tls;
use crate::url::{Place, StoreUrl, UrlSecurity};
use std::time::Duration;

/// How servers are reached.
#[derive(Debug, Clone)]
pub(crate) struct Dial {
    pub(crate) address: StoreAddress,
    pub(crate) access: Access,
    /// How long a replica of a lost node may take to step in.
    pub(crate) takeover: Duration,
}

impl Dial {
    /// Finds what an address means.
    ///
    /// # Errors
    /// A file cannot be used, or no store is found.
    pub(crate) fn new(url: StoreUrl, options: &StoreOptions) -> Result<Self, StoreError> {
        let StoreUrl { place, user, password, security } = url;
        let mut access = Access { user, password: options.password.clone().or(password), tls: None };
        let address = match (place, security) {
            (Place::At(address), UrlSecurity::Plain) => address,
            (Place::At(address), UrlSecurity::Tls(files)) => {
                access.tls = Some(tls::from_files(&files)?);
                address
            }
            (Place::At(address), UrlSecurity::Domain { domain, key }) => {
                let key = domain::key_of(&domain, key.as_deref())?.ok_or(StoreError::NoKey { domain })?;
                access.tls = Some(domain::tls_of(&key)?);
                address
            }
            (Place::Domain, UrlSecurity::Domain { domain, key }) => {
                let key = domain::key_of(&domain, key.as_deref())?;
                access.tls = key.as_ref().map(domain::tls_of).transpose()?;
                domain::discover(&domain, key)?
            }
            (Place::Domain, UrlSecurity::Plain | UrlSecurity::Tls(_)) => {
                return Err(StoreError::Unexpected { what: "a domain without a name" });
            }
        };
        Ok(Self { address, access, takeover: options.takeover })
    }
}
