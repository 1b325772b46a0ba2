package fleet

import (
	"time"
)

// Network is a network that VMs may have.
type Network struct {
	Name      string   `json:"name"`
	Bridge    string   `json:"bridge"`
	VLAN      int      `json:"vlan,omitempty"`
	VXLAN     int      `json:"vxlan,omitempty"`
	Addresses []string `json:"addresses,omitempty"` // pools that are leased, as "10.0.0.20-10.0.0.80/24"
	Gateway   string   `json:"gateway,omitempty"`
	DNS       []string `json:"dns,omitempty"`
	Domain    string   `json:"domain,omitempty"`
	Names     []string `json:"names,omitempty"`   // host names to lease, in order
	Isolate   bool     `json:"isolate,omitempty"` // its VMs of one host do not reach each other
	Closed    bool     `json:"closed,omitempty"`  // only the outside can be reached, not the local network
	Hosts     []string `json:"hosts,omitempty"`   // patterns
	Revision  int64    `json:"revision,omitempty"`
}

// Group says how VMs that name it lie to each other: affinity, anti-affinity, soft-affinity, soft-anti-affinity.
type Group struct {
	Project  string   `json:"project"`
	Name     string   `json:"name"`
	Affinity string   `json:"affinity"`
	VMs      []string `json:"vms,omitempty"` // names of its members
	Revision int64    `json:"revision,omitempty"`
}

// SecurityGroup is what the VMs of a project that are in it may begin, and others with them.
type SecurityGroup struct {
	Project  string         `json:"project"`
	Name     string         `json:"name"`
	Rules    []SecurityRule `json:"rules"`
	VMs      []string       `json:"vms,omitempty"` // names of those that are in it
	Revision int64          `json:"revision,omitempty"`
}

// SecurityRule lets something pass, and the answers to it.
type SecurityRule struct {
	Direction string `json:"direction" enum:"in,out"`
	Protocol  string `json:"protocol,omitempty" enum:"any,tcp,udp,sctp,icmp"`
	Ports     string `json:"ports,omitempty" maxLength:"11" example:"8000-8080"`
	// of the others; neither this nor Group: whoever
	CIDR  string `json:"cidr,omitempty" maxLength:"50" example:"192.0.2.0/24"`
	Group string `json:"group,omitempty" maxLength:"100"` // the others are the VMs of this group
}

// User is a person, or a program that acts as one.
type User struct {
	Name string `json:"name"`
	// of client certificates, in RFC 2253's order, with an authority's name and ":" before it or without
	Subjects []string `json:"subjects,omitempty"`
	// who issuers know the user as: an issuer's name, ":" and its subject
	Logins   []string `json:"logins,omitempty"`
	Disabled bool     `json:"disabled,omitempty"`
	Revision int64    `json:"revision,omitempty"`
}

// Grant gives a user a role: in one project, in one cell, or, with neither, everywhere.
type Grant struct {
	User    string `json:"user"`
	Role    string `json:"role"` // reader, member, operator, admin
	Project string `json:"project,omitempty"`
	Cell    string `json:"cell,omitempty"`
}

// Mapping gives a role to whoever an issuer says something of, for the session or the token that says it.
type Mapping struct {
	Issuer  string `json:"issuer"`
	Claim   string `json:"claim"` // "wlcg.groups"
	Value   string `json:"value"` // one of the claim's
	Role    string `json:"role"`
	Project string `json:"project,omitempty"`
	Cell    string `json:"cell,omitempty"`
}

// Issuer is one by which people sign in.
type Issuer struct {
	Name  string `json:"name"`
	Title string `json:"title,omitempty"` // for people
	URL   string `json:"url"`
	// ClientID is the client of command lines; empty: they cannot sign in by this issuer.
	ClientID string   `json:"client_id,omitempty"`
	Scopes   []string `json:"scopes"`
}

// LoginRequest exchanges an identity token of an issuer for a session.
type LoginRequest struct {
	Issuer string `json:"issuer"`
	Token  string `json:"token"`
}

// LoginAnswer is a new session.
type LoginAnswer struct {
	Session Session `json:"session"`
	// Secret is shown as a token is. It is in this answer, and nowhere else ever after.
	Secret string `json:"secret"`
}

// ClaimsRequest asks what the claims of an issuer would give.
type ClaimsRequest struct {
	Issuer string         `json:"issuer,omitempty"` // empty: the one whose URL is claim iss
	Claims map[string]any `json:"claims"`
}

// ClaimsExplanation is what claims would give, and why.
type ClaimsExplanation struct {
	Issuer  string    `json:"issuer"`
	User    string    `json:"user,omitempty"`    // empty: none
	New     bool      `json:"new,omitempty"`     // the user would be made
	Refused string    `json:"refused,omitempty"` // why nobody would be signed in
	Hint    string    `json:"hint,omitempty"`    // what to do about that
	Own     []Grant   `json:"own"`               // the user's own roles
	Rules   []Mapping `json:"rules"`             // mappings that hold, and what they give
	Ignored []string  `json:"ignored"`           // mappings that do not hold and values that none has, with the reason
}

// Token is a secret that stands for a user.
type Token struct {
	ID       string     `json:"id"`
	User     string     `json:"user"`
	Note     string     `json:"note,omitempty"`
	Role     string     `json:"role,omitempty"`     // at most; empty: the user's own
	Projects []string   `json:"projects,omitempty"` // only these; none: all of the user's
	Created  time.Time  `json:"created"`
	Expires  *time.Time `json:"expires,omitempty"`
	// Secret is in the answer to the creation, and nowhere else ever after.
	Secret string `json:"secret,omitempty"`
}

// TokenRequest asks for a token.
type TokenRequest struct {
	User     string     `json:"user,omitempty"` // empty: the caller
	Note     string     `json:"note,omitempty"`
	Role     string     `json:"role,omitempty"`
	Projects []string   `json:"projects,omitempty"`
	Expires  *time.Time `json:"expires,omitempty"`
}

// Session is somebody who is signed in, in a browser or by a command line.
type Session struct {
	ID      string    `json:"id"`
	User    string    `json:"user"`
	Client  string    `json:"client,omitempty"`  // what signed in, in its own words
	Address string    `json:"address,omitempty"` // where it signed in from
	Means   string    `json:"means"`             // by which: token, oidc
	Source  string    `json:"source"`            // the token's ID, or the issuer's name and the subject
	Grants  []Grant   `json:"grants,omitempty"`  // by the issuer's claims, beside the user's own
	Created time.Time `json:"created"`
	Used    time.Time `json:"used"`  // last, give or take some minutes
	Ends    time.Time `json:"ends"`  // unless it is used before
	Limit   time.Time `json:"limit"` // when it ends however much it is used
}

// JoinToken lets a host enrol once, or so many of them.
type JoinToken struct {
	ID      string            `json:"id"`
	Cell    string            `json:"cell"`
	Name    string            `json:"name,omitempty"` // of the host; empty: any
	Labels  map[string]string `json:"labels,omitempty"`
	By      string            `json:"by"`
	Expires time.Time         `json:"expires"`
	Count   int               `json:"count"`          // hosts that may enrol with it
	Uses    int               `json:"uses"`           // hosts that did
	Used    *time.Time        `json:"used,omitempty"` // last
	Host    string            `json:"host,omitempty"` // ID of the one that used it last
	// Secret is the whole token, as a host needs it. It is in the answer to the creation, and nowhere else ever after.
	Secret string `json:"secret,omitempty"`
}

// JoinTokenRequest asks for a join token.
type JoinTokenRequest struct {
	Cell   string            `json:"cell"`
	Name   string            `json:"name,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Valid  float64           `json:"valid_seconds,omitempty"` // 0: an hour
	Count  int               `json:"count,omitempty"`         // hosts that may enrol with it; 0: one. Not with a name
}

// HostUpdate changes a host's labels. Those that are not named stay, and one whose value is empty is taken away.
type HostUpdate struct {
	Labels map[string]string `json:"labels,omitempty"`
}

// Reason says why something is done, for people.
type Reason struct {
	Reason string `json:"reason,omitempty"`
}

// Entry is one line of the audit log.
type Entry struct {
	ID      int64     `json:"id"`
	Time    time.Time `json:"time"`
	Who     string    `json:"who"` // user or host
	Means   string    `json:"means"`
	Source  string    `json:"source"`
	Action  string    `json:"action"`
	Target  string    `json:"target"`
	Project string    `json:"project,omitempty"`
	Outcome string    `json:"outcome"` // done, denied, failed
	Reason  string    `json:"reason,omitempty"`
}

// Identity is who calls, and how the server knows.
type Identity struct {
	User     string   `json:"user"`
	Means    string   `json:"means"` // socket, certificate, token
	Source   string   `json:"source"`
	Role     string   `json:"role,omitempty"` // at most, by the token
	Projects []string `json:"projects,omitempty"`
	Root     bool     `json:"root,omitempty"`
	Grants   []Grant  `json:"grants,omitempty"`
}

// Explanation is why somebody may, or may not, do something: every rule that was looked at.
type Explanation struct {
	User    string   `json:"user"`
	Action  string   `json:"action"`
	Target  string   `json:"target,omitempty"`
	Allowed bool     `json:"allowed"`
	Why     []string `json:"why"`
}

// Version is what every service answers: who it is.
type Version struct {
	Service    string `json:"service"` // "server"
	Version    string `json:"version"`
	Capability int    `json:"capability"`
	URL        string `json:"url,omitempty"` // of this one of the servers
}

// Status is how the fleet is, in numbers.
type Status struct {
	Version
	Leader   bool           `json:"leader"` // this one of the servers runs the loops
	Revision int64          `json:"revision"`
	Hosts    map[string]int `json:"hosts"`              // by state
	VMs      map[string]int `json:"vms"`                // by state
	Versions map[string]int `json:"versions,omitempty"` // hosts by their agents' version
	Warnings []string       `json:"warnings,omitempty"` // of what concerns the whole fleet
}
