package uplink

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
)

// JoinOptions say how a host joins.
type JoinOptions struct {
	Dir       *os.Root // that only root can look into; the identity is put there
	File      string   // of the identity; "": IdentityFile
	Server    string   // URL
	Token     string
	Name      string // of the host
	Replace   bool   // of an identity that is there, and of a host of this name that the server has
	MachineID string // as /etc/machine-id has it; "": not known
	// CertificateFile and KeyFile are the site's, where the site's authority vouches for hosts; "": the fleet's own
	// makes a certificate.
	CertificateFile, KeyFile string
}

// Join trades a join token for an identity, and keeps it. The secret of the token goes only to a server that shows the
// certificate whose fingerprint the token has. Errors are farm.Error.
func Join(ctx context.Context, o JoinOptions) (Identity, error) {
	token, err := pki.ParseJoinToken(o.Token)
	if err != nil {
		return Identity{}, err
	}
	base, err := baseOf(strings.TrimSuffix(o.Server, "/"))
	if err != nil {
		return Identity{}, err
	}
	k := keeper{o.Dir, cmp.Or(o.File, IdentityFile)}
	if old, err := k.read(); err == nil && !o.Replace {
		return Identity{}, &farm.Error{Kind: farm.Conflict, Code: CodeJoined,
			Message: "this host has joined already, as " + old.Name, Hint: "`--replace` takes its place anew"}
	}
	id := Identity{KeyFile: o.KeyFile, CertificateFile: o.CertificateFile}
	r := fleet.EnrolRequest{Token: token.String(), Name: o.Name, MachineID: hashed(o.MachineID), Replace: o.Replace,
		Now: time.Now().UTC()}
	var shown *tls.Certificate
	if id.CertificateFile != "" {
		pair, err := id.pair()
		if err != nil {
			return Identity{}, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig,
				Message: "the site's certificate cannot be used", Err: err,
				Hint: "give a PEM certificate with its chain, and its key"}
		}
		shown = &pair
	} else if r.CSR, err = id.newKey(); err != nil {
		return Identity{}, err
	}
	if old, err := k.read(); err == nil && shown == nil {
		if pair, err := old.pair(); err == nil {
			shown = &pair // proves to the server that this is the host whose place it takes
		}
	}
	trust := tlsOfToken(token, shown)
	c := &caller{http: &http.Client{Transport: transport(trust), CheckRedirect: noRedirect}, trust: trust,
		servers: []string{base}}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var a fleet.EnrolAnswer
	if _, err := c.call(ctx, http.MethodPost, fleet.RouteEnrol, r, &a); err != nil {
		return Identity{}, err
	}
	id.Host, id.Name, id.Servers, id.CA, id.Certificate = a.Host, a.Name, a.Servers, string(a.CA), string(a.Certificate)
	if len(id.Servers) == 0 {
		id.Servers = []string{base}
	}
	if _, err := id.pair(); err != nil || id.Host == "" {
		return Identity{}, garbled(base, err)
	}
	return id, k.write(id)
}

// newKey makes a key, and asks for its certificate.
func (id *Identity) newKey() (csr []byte, err error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	id.Key = string(key)
	return pki.NewRequest(key)
}

// hashed is a machine ID as others may know it: machine-id(5) wants it kept from the network as it is.
func hashed(machineID string) string {
	machineID = strings.TrimSpace(machineID)
	if machineID == "" {
		return ""
	}
	mac := hmac.New(sha256.New, []byte(machineID))
	mac.Write([]byte("grange host"))
	return hex.EncodeToString(mac.Sum(nil))
}
