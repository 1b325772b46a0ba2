package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/stricttoml"
)

// Codes of errors of workers; see docs/errors.md.
const (
	CodeBadHostList  farm.Code = "bad-host-list"
	CodeSlurm        farm.Code = "slurm-refuses" // scontrol did not do what it was asked
	CodeWorkerConfig farm.Code = "bad-worker-config"
)

// Config is the configuration of `grange worker`, on the host that runs slurmctld.
type Config struct {
	Scontrol    string
	SlurmConf   string        // "": Slurm's own default
	Log         string        // file that the programs write to beside syslog; "": none
	WaitTimeout time.Duration // for room on a host
	BootTimeout time.Duration // Slurm's ResumeTimeout
	Restarts    int
	Warm        int
	Hosts       []HostConfig
	Images      []ImageConfig
}

// HostConfig is an agent and the nodes it makes.
type HostConfig struct{ Nodes, Socket string }

// ImageConfig is one rule that says of what a node is made.
type ImageConfig struct{ Feature, Partition, Nodes, Image, Shape string }

type configFile struct {
	Scontrol    string `toml:"scontrol"`
	SlurmConf   string `toml:"slurm_conf"`
	Log         string `toml:"log"`
	WaitTimeout string `toml:"wait_timeout"`
	Patience    string `toml:"patience"` // what wait_timeout was called
	BootTimeout string `toml:"boot_timeout"`
	Restarts    int    `toml:"restarts"`
	Warm        int    `toml:"warm"`
	Host        []struct {
		Nodes  string `toml:"nodes"`
		Socket string `toml:"socket"`
	} `toml:"host"`
	Image []struct {
		Feature   string `toml:"feature"`
		Partition string `toml:"partition"`
		Nodes     string `toml:"nodes"`
		Image     string `toml:"image"`
		Shape     string `toml:"shape"`
	} `toml:"image"`
}

const defaultWaitTimeout = "10s"

// ReadConfig reads worker.toml. Without [[host]] all nodes are those of the agent on this host, at socket.
func ReadConfig(path, socket string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, &farm.Error{Kind: farm.Invalid, Code: CodeWorkerConfig,
			Message: "no configuration of workers", Hint: "write " + path + "; docs/guide/slurm-elastic.md shows one",
			Err: err}
	}
	return ParseConfig(text, path, socket)
}

// ParseConfig reads TOML text; name stands for it in errors.
func ParseConfig(text []byte, name, socket string) (Config, error) {
	fail := func(what string) (Config, error) {
		return Config{}, &farm.Error{Kind: farm.Invalid, Code: CodeWorkerConfig, Message: name + ": " + what,
			Hint: "docs/guide/slurm-elastic.md explains every key"}
	}
	f := configFile{Scontrol: "/usr/bin/scontrol", WaitTimeout: defaultWaitTimeout, BootTimeout: "5m", Restarts: 5}
	if err := stricttoml.Unmarshal(text, &f); err != nil {
		return fail(err.Error())
	}
	w := Config{Scontrol: f.Scontrol, SlurmConf: f.SlurmConf, Log: f.Log, Restarts: f.Restarts, Warm: f.Warm}
	var err error
	if f.WaitTimeout == defaultWaitTimeout && f.Patience != "" {
		f.WaitTimeout = f.Patience
	}
	w.WaitTimeout, err = time.ParseDuration(f.WaitTimeout)
	if err != nil || w.WaitTimeout < 0 || w.WaitTimeout > time.Minute {
		return fail(fmt.Sprintf("wait_timeout: %q is not between 0s and 1m", f.WaitTimeout))
	}
	if w.BootTimeout, err = time.ParseDuration(f.BootTimeout); err != nil || w.BootTimeout < time.Second {
		return fail(fmt.Sprintf("boot_timeout: invalid time %q: at least 1s", f.BootTimeout))
	}
	if w.Warm < 0 || w.Restarts < 0 {
		return fail("warm and restarts are not below 0")
	}
	for key, path := range map[string]string{"scontrol": f.Scontrol, "slurm_conf": f.SlurmConf, "log": f.Log} {
		if path != "" && !filepath.IsAbs(path) {
			return fail(fmt.Sprintf("%s: %q is not an absolute path", key, path))
		}
	}
	for i, h := range f.Host {
		if h.Nodes == "" || !filepath.IsAbs(h.Socket) {
			return fail(fmt.Sprintf("host %d: nodes and an absolute socket are needed", i+1))
		}
		w.Hosts = append(w.Hosts, HostConfig(h))
	}
	if len(w.Hosts) == 0 {
		w.Hosts = []HostConfig{{Nodes: "*", Socket: socket}}
	}
	for i, r := range f.Image {
		if r.Image == "" && r.Shape == "" {
			return fail(fmt.Sprintf("image %d: neither image nor shape", i+1))
		}
		w.Images = append(w.Images, ImageConfig(r))
	}
	return w, nil
}
