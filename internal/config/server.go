package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/stricttoml"
)

// Server is the configuration of a server.
type Server struct {
	Store      string // path of an SQLite database, or a postgres:// URL
	Socket     string // for people on this machine; "": none
	SocketMode fs.FileMode
	Listen     string   // HOST:PORT for TLS; "": none
	URL        string   // by which hosts and other servers reach this one; "" without Listen
	Servers    []string // URLs of all servers of the fleet; none: URL
	// Certificate and Key are files of what the listener shows; "": the fleet's CA issues it. CA vouches for
	// it, and is what hosts are given to believe.
	Certificate, Key, CA string
	CAKeyFile            string // seals the key of the fleet's CA in the store
	// who vouches for people's certificates, by the name that users' subjects have them under
	People map[string]Authority
	// file of a site's authority that vouches for hosts beside our own; "": none
	HostCA      string
	HostField   string // where its certificates name the host: dns or cn
	SilentAfter time.Duration
	Brokers     map[string]Broker // by the word that cells name them by
	ImageRate   farm.Bytes        // a second that hosts together get of images; 0: any number
	SourceRate  farm.Bytes        // a second that this server downloads of images; 0: any number
	// ImageDir has the files of the catalogue of images, which take ImageSpace at most; 0: what is free.
	ImageDir   string
	ImageSpace farm.Bytes
	// FileSystems are the network file systems that the site declares, by name.
	FileSystems []farm.FileSystem
	// MetricsListen is where scrapers need no account of the fleet, but perhaps the token in MetricsTokenFile; "":
	// nowhere.
	MetricsListen, MetricsTokenFile string

	Issuers map[string]Issuer // by which people sign in, by the name that logins and mappings have them under
	// SessionIdle and SessionLimit are how long a sign-in lasts, without a request and in all.
	SessionIdle, SessionLimit time.Duration

	Usage UsageOfSite
}

// Authority vouches for people's certificates.
type Authority struct {
	CA       string   `toml:"ca"`       // file of its certificate
	Subjects []string `toml:"subjects"` // namespaces of the subjects that it may sign, as "DC=cern,DC=ch"; none: all
	CRL      []string `toml:"crl"`      // files of its revocation lists; none: nobody looks
}

// onlyPeople is the authority that people_ca and people_crl are short for.
const onlyPeople = "people"

func (a Authority) check(name string) error {
	if err := farm.CheckName("authority", name); err != nil {
		return err
	}
	for _, path := range append([]string{a.CA}, a.CRL...) {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("people.%s: %q is not an absolute path", name, path)
		}
	}
	for _, s := range a.Subjects {
		if _, err := farm.ParseSubject(s); err != nil {
			return fmt.Errorf("people.%s.subjects: %w", name, err)
		}
	}
	return nil
}

// Broker is a batch system that cells may name as their broker, beside those that need no configuration.
type Broker struct {
	System      string            `toml:"system"`      // one of internal/batch/systems
	Program     string            `toml:"program"`     // of exec
	Environment map[string]string `toml:"environment"` // of the system's commands, as SLURM_CONF
	// what keeps placeholders out of VMs: options of sbatch or qsub, or one queue of PBS or LSF
	Hold []string `toml:"hold"`
	// of Grid Engine: the parallel environment for placeholders of several CPUs
	Parallel string `toml:"parallel"`
	Projects bool   `toml:"projects"` // of Grid Engine: accounts are its projects
}

func (b Broker) check(name string) error {
	kind, known := systems.Find(farm.BatchSystem(b.System))
	switch {
	case name == farm.BrokerGrange:
		return errors.New("brokers.grange: grange itself is called so")
	case farm.CheckName("broker", name) != nil:
		return farm.CheckName("broker", name)
	case !known:
		return fmt.Errorf("brokers.%s.system: invalid value %q: expected one of %s", name, b.System, systems.Names())
	case kind.Program != (b.Program != ""):
		return fmt.Errorf("brokers.%s: a program belongs to the system exec, and exec needs one", name)
	case (b.Parallel != "" || b.Projects) && !kind.Parallel:
		return fmt.Errorf("brokers.%s: parallel and projects are Grid Engine's", name)
	case len(b.Hold) > 0 && kind.Holds == 0:
		return fmt.Errorf("brokers.%s.hold: %s needs none to keep a placeholder out of VMs", name, kind.Name)
	case len(b.Hold) > kind.Holds:
		return fmt.Errorf("brokers.%s.hold: of %s this is one queue", name, kind.Name)
	}
	return nil
}

// Settings are what its driver is opened with.
func (b Broker) Settings() batch.Settings {
	return batch.Settings{Program: b.Program, Environment: b.Environment, Hold: b.Hold, Parallel: b.Parallel,
		Projects: b.Projects}
}

// UsageOfSite is what a server does with records of usage.
type UsageOfSite struct {
	KeepDays int `toml:"keep_days"` // 0: for ever
	MaskDays int `toml:"mask_days"` // after which they name nobody any more; 0: never
	// jobs without a VM are in it, too, as the batch systems of cells have them
	HostJobs bool `toml:"host_jobs"`
	// accounts of hosts and users of the fleet that have one name are one person
	SameNames bool              `toml:"same_names"`
	VOs       map[string]string `toml:"vos"` // FQANs by patterns of projects and accounts
}

// fileSystem declares a network file system of the site.
type fileSystem struct {
	Source     string `toml:"source"`
	Type       string `toml:"type"`
	MountPoint string `toml:"mount_point"`
	Clients    int    `toml:"clients"`
	Note       string `toml:"note"`
}

// serverFile is what the TOML looks like. Its keys are explained in docs/guide/server.md.
type serverFile struct {
	Store       string               `toml:"store"`
	Socket      string               `toml:"socket"`
	SocketMode  int                  `toml:"socket_mode"`
	Listen      string               `toml:"listen"`
	URL         string               `toml:"url"`
	Servers     []string             `toml:"servers"`
	Certificate string               `toml:"certificate"`
	Key         string               `toml:"key"`
	CA          string               `toml:"ca"`
	CAKeyFile   string               `toml:"ca_key_file"`
	PeopleCA    string               `toml:"people_ca"`
	PeopleCRL   []string             `toml:"people_crl"`
	People      map[string]Authority `toml:"people"`
	HostCA      string               `toml:"host_ca"`
	HostField   string               `toml:"host_field"`
	SilentAfter string               `toml:"silent_after"`
	Brokers     map[string]Broker    `toml:"brokers"`
	ImageRate   string               `toml:"image_rate"`
	SourceRate  string               `toml:"image_source_rate"`
	ImageDir    string               `toml:"image_dir"`
	ImageSpace  string               `toml:"image_space"`

	MetricsListen    string `toml:"metrics_listen"`
	MetricsTokenFile string `toml:"metrics_token_file"`

	FileSystems  map[string]fileSystem `toml:"file_systems"`
	Issuers      map[string]Issuer     `toml:"issuers"`
	SessionIdle  string                `toml:"session_idle"`
	SessionLimit string                `toml:"session_limit"`
	Usage        UsageOfSite           `toml:"usage"`
}

// ReadServer reads the file at path; a missing one means all defaults.
func ReadServer(path string) (Server, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Server{}, err
	}
	return ParseServer(text, path)
}

// ParseServer reads TOML text; name stands for it in errors.
func ParseServer(text []byte, name string) (Server, error) {
	f := serverFile{Store: "/var/lib/grange-server/server.db", Socket: "/run/grange-server/server.sock",
		SocketMode: 0o666, Listen: ":7480", HostField: "dns", SilentAfter: "90s",
		ImageSpace: "200G", ImageRate: "0", SourceRate: "0",
		SessionIdle: "8h", SessionLimit: "24h", Usage: UsageOfSite{KeepDays: 400}}
	if err := stricttoml.Unmarshal(text, &f); err != nil {
		return Server{}, badServer(name, err.Error())
	}
	s, err := f.server()
	if err != nil {
		return Server{}, badServer(name, err.Error())
	}
	return s, nil
}

func (f serverFile) server() (Server, error) {
	s := Server{Store: f.Store, Socket: f.Socket, SocketMode: fs.FileMode(f.SocketMode) & fs.ModePerm, Listen: f.Listen,
		URL: f.URL, Servers: f.Servers, Certificate: f.Certificate, Key: f.Key, CA: f.CA, CAKeyFile: f.CAKeyFile,
		People: f.People, HostCA: f.HostCA, HostField: f.HostField, Brokers: f.Brokers,
		ImageDir: f.ImageDir, MetricsListen: f.MetricsListen, MetricsTokenFile: f.MetricsTokenFile,
		Issuers: f.Issuers, Usage: f.Usage}
	if f.PeopleCA == "" && len(f.PeopleCRL) > 0 {
		return s, errors.New("people_crl: people_ca is not set")
	}
	if f.PeopleCA != "" {
		if _, twice := s.People[onlyPeople]; twice {
			return s, errors.New("people_ca, people.people: both are the authority people")
		}
		if s.People == nil {
			s.People = map[string]Authority{}
		}
		s.People[onlyPeople] = Authority{CA: f.PeopleCA, CRL: f.PeopleCRL}
	}
	if f.SocketMode < 0 || f.SocketMode > 0o777 {
		return s, fmt.Errorf("socket_mode: invalid mode %#o", f.SocketMode)
	}
	var err error
	if s.ImageRate, err = parseRate("image_rate", f.ImageRate); err != nil {
		return s, err
	}
	if s.SourceRate, err = parseRate("image_source_rate", f.SourceRate); err != nil {
		return s, err
	}
	// Hosts poll three times in that time: less would be a load, and what takes longer is no news any more.
	if s.SilentAfter, err = time.ParseDuration(f.SilentAfter); err != nil || s.SilentAfter < 5*time.Second ||
		s.SilentAfter > time.Hour {
		return s, fmt.Errorf("silent_after: invalid time %q: from 5s to 1h", f.SilentAfter)
	}
	if err := s.sessions(f); err != nil {
		return s, err
	}
	if s.ImageSpace, err = farm.ParseBytes(f.ImageSpace); err != nil || s.ImageSpace < farm.MiB {
		return s, fmt.Errorf("image_space: invalid size %q: at least 1M", f.ImageSpace)
	}
	if s.FileSystems, err = fileSystems(f.FileSystems); err != nil {
		return s, err
	}
	if err := s.Usage.check(); err != nil {
		return s, err
	}
	return s, s.check()
}

// sessions reads how long a sign-in lasts. A month without a look at what the issuer says is too long.
func (s *Server) sessions(f serverFile) (err error) {
	if s.SessionLimit, err = time.ParseDuration(f.SessionLimit); err != nil || s.SessionLimit < time.Minute ||
		s.SessionLimit > 30*24*time.Hour {
		return fmt.Errorf("session_limit: invalid time %q: from 1m to 720h", f.SessionLimit)
	}
	if s.SessionIdle, err = time.ParseDuration(f.SessionIdle); err != nil || s.SessionIdle < time.Minute ||
		s.SessionIdle > s.SessionLimit {
		return fmt.Errorf("session_idle: invalid time %q: from 1m to session_limit", f.SessionIdle)
	}
	return nil
}

// Chunks is where the indexes of images are kept: beside a SQLite file, or in the server's directory.
func (s Server) Chunks() string {
	if strings.Contains(s.Store, "://") {
		return filepath.Join(stateDir, "chunks")
	}
	return filepath.Join(filepath.Dir(s.Store), "chunks")
}

// History is the file that keeps what the fleet was like: beside a SQLite file, or in the server's directory.
func (s Server) History() string {
	if strings.Contains(s.Store, "://") {
		return filepath.Join(stateDir, "history")
	}
	return filepath.Join(filepath.Dir(s.Store), "history")
}

// stateDir is where a server keeps what is not in its database, when that is elsewhere.
const stateDir = "/var/lib/grange-server"

// KeyFile is CAKeyFile, or what it is where nothing is said: ca.key beside a SQLite file, and never in the database or
// a backup of it.
func (s Server) KeyFile() string {
	switch {
	case s.CAKeyFile != "":
		return s.CAKeyFile
	case strings.Contains(s.Store, "://"):
		return filepath.Join(stateDir, "ca.key")
	}
	return filepath.Join(filepath.Dir(s.Store), "ca.key")
}

// Images is ImageDir, or what it is where nothing is said: images beside a SQLite file, or in the server's directory.
func (s Server) Images() string {
	switch {
	case s.ImageDir != "":
		return s.ImageDir
	case strings.Contains(s.Store, "://"):
		return filepath.Join(stateDir, "images")
	}
	return filepath.Join(filepath.Dir(s.Store), "images")
}

// Reached is s with a URL, where it has a port and no URL: by the address that it listens on, or else the machine's
// name.
func (s Server) Reached() (Server, error) {
	if s.URL != "" || s.Listen == "" {
		return s, nil
	}
	host, port, err := net.SplitHostPort(s.Listen)
	if err != nil || port == "" || port == "0" {
		return s, badServer("listen", fmt.Sprintf("%q says no port by which others reach the server", s.Listen))
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return s, err
		}
	}
	s.URL = "https://" + net.JoinHostPort(host, port)
	return s, nil
}

func (s Server) check() error {
	if _, _, err := net.SplitHostPort(s.Listen); err != nil && s.Listen != "" {
		return fmt.Errorf("listen: %q is not HOST:PORT", s.Listen)
	}
	if err := checkListener("metrics_listen", s.MetricsListen, "metrics_token_file", s.MetricsTokenFile); err != nil {
		return err
	}
	urls := s.Servers
	if s.URL != "" {
		urls = append([]string{s.URL}, urls...)
	}
	for _, text := range urls {
		if u, err := url.Parse(text); err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Path != "" {
			return fmt.Errorf("url, servers: %q is not https://HOST:PORT", text)
		}
	}
	for key, path := range map[string]string{"socket": s.Socket, "certificate": s.Certificate, "key": s.Key, "ca": s.CA,
		"ca_key_file": s.CAKeyFile, "host_ca": s.HostCA, "image_dir": s.ImageDir} {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("%s: %q is not an absolute path", key, path)
		}
	}
	for name, a := range s.People {
		if err := a.check(name); err != nil {
			return err
		}
	}
	for name, i := range s.Issuers {
		if err := i.check(name); err != nil {
			return err
		}
	}
	for name, i := range s.Issuers {
		if i.CreateUsers && s.Usage.SameNames {
			return fmt.Errorf("issuers.%s.create_users: with same_names of [usage], whoever signs in for the first time "+
				"under the name of an account of a host would be told what that one has used; choose one of them", name)
		}
	}
	if len(s.Issuers) > 0 && s.Listen == "" {
		return errors.New("issuers: listen is not set, and browsers come by it")
	}
	for name, b := range s.Brokers {
		if err := b.check(name); err != nil {
			return err
		}
	}
	switch {
	case s.Store == "":
		return errors.New("store: not set, and a server needs one")
	case s.Socket == "" && s.Listen == "":
		return errors.New("socket, listen: without both, nobody reaches the server")
	case (s.Certificate == "") != (s.Key == ""):
		return errors.New("certificate, key: one without the other")
	case s.Certificate != "" && s.CA == "":
		return errors.New("ca: required with certificate, for hosts to verify it")
	case s.HostField != "dns" && s.HostField != "cn":
		return fmt.Errorf("host_field: %q is neither dns nor cn", s.HostField)
	}
	return nil
}

func badServer(name, what string) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig, Message: name + ": " + what,
		Hint: "docs/guide/server.md explains every key"}
}
