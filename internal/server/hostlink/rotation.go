package hostlink

import (
	"cmp"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/server/action"
)

// Codes of the fleet's authorities; see docs/errors.md.
const (
	CodeCANeeded   farm.Code = "ca-still-needed"
	CodeCARotates  farm.Code = "ca-rotation-under-way"
	CodeNoRotation farm.Code = "no-ca-rotation"
)

// A rotation goes so: the next authority is made, and is trusted and believed beside the present one; hosts report, are
// told both, and renew their certificates, which the next one issues; the present one is retired. Each client of the
// listener is shown a certificate of the newest authority that it says it believes, so that there is no moment at which
// the listener changes for all of them.

const (
	// retireAfter is when a rotation ends by itself, if nothing needs the authority before: no join token and no
	// certificate of a host that it issued is valid by then, and people had time to put the new one where their clients
	// read it.
	retireAfter = max(joinValidMax, pki.HostLife)
	// awayAfter is how long a host was not heard of that a rotation which is due does not wait for.
	awayAfter = 7 * 24 * time.Hour
)

// rotation is what decides when an authority may be retired.
type rotation struct {
	next string // fingerprint
	made time.Time
	site bool // the site vouches for the listener: hosts and join tokens believe that, and not the fleet's authorities
	now  time.Time
}

// Waited is a host or a join token that stops working when the present authority is retired.
type Waited struct {
	Host  string // name; "" of a token
	Token string // ID; "" of a host
	Why   string
	Seen  time.Time // of a host
	Away  bool      // not heard of for so long that a rotation which is due does not wait for it
}

// Name is what people call it by.
func (w Waited) Name() string { return cmp.Or(w.Host, w.Token) }

// host reports whether a host still needs the present authority, and for what.
func (r rotation) host(h farm.Host, seen time.Time) (w Waited, needs bool) {
	w = Waited{Host: h.Name, Seen: seen, Away: r.now.Sub(seen) > awayAfter && r.now.Sub(h.Enrolled) > awayAfter}
	ours := h.Serial != pki.SiteSerial
	switch {
	case ours && !r.now.Before(h.Expires): // has to join anew in any case
		return w, false
	case !r.site && len(h.Facts.Trusts) == 0:
		w.Why = "its agent does not report which authorities it trusts: update grange there"
	case !r.site && !slices.Contains(h.Facts.Trusts, r.next):
		w.Why = "it does not trust the next authority yet"
	case ours && h.Issuer != r.next:
		w.Why = "its certificate is of the present authority"
	case ours && h.Before != "":
		w.Why = "it has not used its next certificate yet"
	default:
		return w, false
	}
	return w, true
}

// token reports whether a join token still needs the present authority.
func (r rotation) token(k farm.JoinToken) (w Waited, needs bool) {
	valid := r.now.Before(k.Expires) && k.Uses < max(k.Count, 1)
	why := "it is valid until " + action.When(k.Expires) + ", and hosts that join by it expect the present authority"
	return Waited{Token: k.ID, Why: why}, valid && !r.site && k.CA != r.next
}

// due reports whether a rotation ends by itself.
func (r rotation) due(waited []Waited) bool {
	needed := slices.ContainsFunc(waited, func(w Waited) bool { return !w.Away })
	return !r.now.Before(r.made.Add(retireAfter)) && !needed
}

// mayRetire refuses to retire the present authority where that cuts somebody off whom the caller did not name.
func mayRetire(waited []Waited, without []string) error {
	var unnamed []string
	for _, w := range waited {
		if !slices.Contains(without, w.Name()) {
			unnamed = append(unnamed, w.Name())
		}
	}
	if len(unnamed) == 0 {
		return nil
	}
	return &farm.Error{Kind: farm.Conflict, Code: CodeCANeeded,
		Message: "the present authority is still needed by " + farm.Enumerate(unnamed),
		Hint:    "`grange server ca` shows what for; `grange server ca retire --now` shows whom it cuts off, and asks"}
}
