// Package authn finds out who calls the server, by what the caller shows: the kernel's word about a socket, a client
// certificate, a token, or the session of a browser. It never says what the caller may do: that is policy.
package authn

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"net/netip"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/oidc"
	"github.com/grange-project/grange/internal/throttle"
)

// Failures of one address that are answered by what was wrong, and the time after which it may have one more.
const (
	maxTries = 20
	tryBack  = time.Second
)

// Shown is what a caller shows of itself.
type Shown struct {
	Socket bool
	UID    uint32 // of the process at the other end of a unix socket
	// Chain is what TLS brought, the caller's certificate first. TLS has proven that the caller has its key; who signed
	// it, nobody has looked at.
	Chain   []*x509.Certificate
	Token   string
	Session string     // of a browser's cookie
	Address netip.Addr // the zero value on a socket
}

// Directory knows people and hosts. Of what it does not know, its errors have farm.CodeNotKnown. It is *server.Server.
type Directory interface {
	// IdentifyToken knows tokens, and sessions of command lines, which are shown as tokens are.
	IdentifyToken(ctx context.Context, text string) (farm.Identity, error)
	IdentifySession(ctx context.Context, text string) (farm.Identity, error)
	// IdentifyClaims knows programs by what an issuer says in their token.
	IdentifyClaims(ctx context.Context, claims farm.Claims) (farm.Identity, error)
	// IdentifySubject knows who has a certificate of an authority with a subject. One that users have without an
	// authority counts if there is only one.
	IdentifySubject(ctx context.Context, authority, subject string, only bool) (farm.Identity, error)
	IdentifyUser(ctx context.Context, name string) (farm.Identity, error)
	HostAt(ctx context.Context, shown []*x509.Certificate) (farm.Identity, error)
}

// Means is one way to know a caller. It is not asked about what was not shown: mine is false then, and the next one is
// asked. With mine and an error the caller has shown something that does not hold, and no other means is asked: a wrong
// token is not healed by a socket.
type Means func(ctx context.Context, s Shown) (who farm.Identity, mine bool, err error)

// Options is what an Authenticator is made of.
type Options struct {
	Directory Directory
	Now       func() time.Time // nil: time.Now
	// People are the authorities that vouch for people's certificates; nil: none are taken.
	People  *People
	Issuers *oidc.Issuers  // of people's and programs' organizations; nil: none
	Names   *names.Service // of users of this machine; nil: the host's
}

// Authenticator knows callers.
type Authenticator struct {
	directory Directory
	people    []Means          // in the order in which they are asked
	tries     throttle.Buckets // failures by address
}

// New makes an Authenticator.
func New(o Options) *Authenticator {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Authenticator{directory: o.Directory,
		people: []Means{byIssuer(o.Directory, o.Issuers), byToken(o.Directory), bySession(o.Directory),
			byCertificate(o.Directory, o.People, o.Now), bySocket(o.Directory, cmp.Or(o.Names, names.Host()))},
		tries: throttle.Buckets{Size: maxTries, Leak: tryBack, Now: o.Now}}
}

// Identify returns which person calls. The error is a *farm.Error: CodeNotKnown, CodeTooManyTries, or one of the
// directory. What is shown is looked at whatever else came from its address: others may share that, or pretend to it.
func (a *Authenticator) Identify(ctx context.Context, s Shown) (farm.Identity, error) {
	for _, m := range a.people {
		if who, mine, err := m(ctx, s); mine {
			return who, a.Counted(s, err)
		}
	}
	return farm.Identity{}, notKnown("the server does not know who calls",
		"show a token, `Authorization: Bearer …`, or a client certificate; `grange auth whoami` shows what the "+
			"server sees")
}

// IdentifyHost returns which host calls, by its certificate. The error is as that of Identify.
func (a *Authenticator) IdentifyHost(ctx context.Context, s Shown) (farm.Identity, error) {
	if len(s.Chain) == 0 {
		return farm.Identity{}, notKnown("a host shows the certificate of its enrolment, and this caller shows none",
			"see `grange host join --help`")
	}
	who, err := a.directory.HostAt(ctx, s.Chain)
	return who, a.Counted(s, err)
}

// Counted is the answer to what was shown: an address with too many failures is not told what was wrong with the next
// one. It counts those of who is nobody, by whatever they were found.
func (a *Authenticator) Counted(s Shown, err error) error {
	if farm.IsCode(err, farm.CodeNotKnown) || farm.IsCode(err, farm.CodeNoLogin) {
		return a.Failed(s, err)
	}
	return err
}

// Failed counts a failure of an address, also one that others found: a wrong join token. It returns err, or
// CodeTooManyTries in its place. Secrets are too long to be guessed; this has a program with an old token come less
// often, and keeps it from filling the log.
func (a *Authenticator) Failed(s Shown, err error) error {
	if !s.Address.IsValid() {
		return err
	}
	if room, _ := a.tries.Add(throttle.Party(s.Address)); room {
		return err
	}
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeTooManyTries,
		Message: fmt.Sprintf("too many failed tries from %v", s.Address),
		Hint: fmt.Sprintf("stop the program that shows an old token or certificate; after %v the answer says again "+
			"what is wrong", maxTries*tryBack)}
}

func notKnown(message, hint string) *farm.Error {
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotKnown, Message: message, Hint: hint}
}
