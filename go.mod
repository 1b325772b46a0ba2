module github.com/grange-project/grange

go 1.26.0

require (
	github.com/digitalocean/go-libvirt v0.0.0-20250512231903-57024326652b
	github.com/google/go-cmp v0.7.0
	github.com/hanwen/go-fuse/v2 v2.12.1
	github.com/kdomanski/iso9660 v0.4.0
	github.com/klauspost/compress v1.18.0
	github.com/pelletier/go-toml/v2 v2.4.3
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.9
	golang.org/x/sys v0.49.0
	golang.org/x/term v0.47.0
	libvirt.org/go/libvirtxml v1.12005.0
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	golang.org/x/crypto v0.38.0 // indirect
)
