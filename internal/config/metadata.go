package config

// Metadata is how the host tells its cloud VMs what they are.
type Metadata struct {
	Serve        bool // answer at 169.254.169.254 on bridges with cloud VMs
	RequireToken bool // refuse who brings no session token
}

type metadataFile struct {
	Serve        bool `toml:"serve"`
	RequireToken bool `toml:"require_token"`
}
