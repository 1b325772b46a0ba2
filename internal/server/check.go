package server

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// Bounds of one request. They are far above what anybody needs, and keep rows and wanted lists small.
const (
	maxCount    = 100 // VMs of one request
	maxName     = 63  // of a host name's label, RFC 1123
	maxKeys     = 32
	maxKey      = 16 << 10 // bytes of one key's text; RSA of 16384 bits has 2.8 KiB
	maxUserData = 64 << 10 // bytes; EC2 takes 16 KiB, NoCloud any
	maxNeeds    = 16
	maxNeed     = 128
	maxImage    = 256 // bytes of an image's name
	leastRSA    = 2048
)

var (
	validLabel = lazyregexp.New(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	validNeed  = lazyregexp.New(`^(!?[A-Za-z0-9][A-Za-z0-9._/-]*|[A-Za-z0-9][A-Za-z0-9._/-]*!?=[A-Za-z0-9._/:-]*)$`)
)

func badVM(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadVM, Message: fmt.Sprintf(format, args...),
		Hint: "change the request; `grange vm create --help` says what there is"}
}

// check refuses what makes no sense whatever the fleet has, and brings keys into their plain form.
func (r *CreateVM) check(now time.Time) error {
	if r.Count == 0 {
		r.Count = 1
	}
	switch {
	case r.Project == "":
		return badVM("a VM belongs to a project; none is named")
	case r.Count < 1 || r.Count > maxCount:
		return badVM("%d VMs; one request makes 1 to %d", r.Count, maxCount)
	case r.Count > 1 && r.Address.IsValid():
		return badVM("%d VMs cannot all have address %s", r.Count, r.Address)
	case r.Address.IsValid() && r.Network == "":
		return badVM("address %s without a network", r.Address)
	case len(r.UserData) > maxUserData:
		return badVM("%v of user data; at most %v", farm.Bytes(len(r.UserData)), farm.Bytes(maxUserData))
	case len(r.Needs) > maxNeeds:
		return badVM("%d selectors of hosts; at most %d", len(r.Needs), maxNeeds)
	}
	for _, name := range r.names() {
		if err := checkName(name); err != nil {
			return err
		}
	}
	for _, n := range r.Needs {
		if len(n) > maxNeed || !validNeed.MatchString(n) {
			return badVM("%.80q selects no hosts; write LABEL, !LABEL, LABEL=VALUE or LABEL!=VALUE", n)
		}
	}
	if err := checkTags(r.Tags); err != nil {
		return err
	}
	if err := checkExpiry(r.Expires, now); err != nil {
		return err
	}
	var err error
	r.Keys, err = plainKeys(r.Keys)
	return err
}

// names are those of the VMs to make.
func (r *CreateVM) names() []string {
	if r.Count <= 1 {
		return []string{r.Name}
	}
	var names []string
	for i := range r.Count {
		names = append(names, fmt.Sprintf("%s-%d", r.Name, i+1))
	}
	return names
}

func checkName(name string) error {
	if len(name) > maxName || !validLabel.MatchString(name) {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadName,
			Message: fmt.Sprintf("invalid VM name %.80q", name),
			Hint: fmt.Sprintf("a VM is named like a host: 1 to %d of a-z, 0-9 and dash, no dash at either end",
				maxName)}
	}
	return nil
}

// checkImage refuses what names no image of any host. Hosts know a digest by its first digits too; in a fleet they
// could mean another image on each host.
func checkImage(ref string) error {
	switch {
	case ref == "":
		return badVM("no image is named")
	case len(ref) > maxImage || !utf8.ValidString(ref) || ref != farm.Printable(ref):
		return badVM("invalid image name %.80q", ref)
	case strings.HasPrefix(ref, "sha256:") && len(ref) != len("sha256:")+2*sha256.Size:
		return badVM("invalid image digest %.80q", ref)
	}
	return nil
}

func checkTags(tags map[string]string) error {
	if fault := farm.TagFault(tags); fault != "" {
		return badVM("%s", fault)
	}
	return nil
}

func checkExpiry(expires, now time.Time) error {
	if !expires.IsZero() && !expires.After(now) {
		return badVM("the VM would expire at %s, which is past", expires.UTC().Format(time.RFC3339))
	}
	return nil
}

// plainKeys reads public SSH keys as authorized_keys has them, and writes them in one form: kind, key, comment. Options
// are refused: what a key may do in a VM is the VM's business.
func plainKeys(texts []string) ([]string, error) {
	if len(texts) > maxKeys {
		return nil, badKey("%d keys; at most %d", len(texts), maxKeys)
	}
	var plain []string
	for i, text := range texts {
		key, err := plainKey(text)
		if err != nil {
			return nil, badKey("SSH key %d: %v", i+1, err)
		}
		if !slices.Contains(plain, key) {
			plain = append(plain, key)
		}
	}
	return plain, nil
}

func plainKey(text string) (string, error) {
	if len(text) > maxKey {
		return "", fmt.Errorf("%d bytes; at most %d", len(text), maxKey)
	}
	if strings.Contains(text, "PRIVATE KEY") {
		return "", fmt.Errorf("this is a private key: keep it, give the .pub file, and make a new pair, for this one " +
			"has been sent")
	}
	key, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	switch {
	case err != nil:
		return "", fmt.Errorf("not a public key as ~/.ssh/id_ed25519.pub has it")
	case len(options) > 0:
		return "", fmt.Errorf("it has options; give the key alone")
	case len(bytes.TrimSpace(rest)) > 0:
		return "", fmt.Errorf("it is several lines; give each key by itself")
	}
	if err := strong(key); err != nil {
		return "", err
	}
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	if comment = strings.TrimSpace(farm.Printable(comment)); comment != "" {
		line += " " + comment
	}
	return line, nil
}

// strong refuses kinds of keys that OpenSSH's server does not take any more.
func strong(key ssh.PublicKey) error {
	switch key.Type() {
	case "ssh-dss":
		return fmt.Errorf("DSA keys are broken; make one with `ssh-keygen -t ed25519`")
	case ssh.KeyAlgoRSA:
		if k, ok := key.(ssh.CryptoPublicKey).CryptoPublicKey().(*rsa.PublicKey); ok && k.N.BitLen() < leastRSA {
			return fmt.Errorf("RSA of %d bits; at least %d", k.N.BitLen(), leastRSA)
		}
	}
	if strings.Contains(key.Type(), "-cert-") {
		return fmt.Errorf("it is a certificate; give the key")
	}
	return nil
}

func badKey(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadKey, Message: fmt.Sprintf(format, args...),
		Hint: "give what a .pub file of ssh-keygen holds, or have a key made with --new-key"}
}

// newKey makes an SSH key. The private half is for the caller's eyes alone.
func newKey(comment string) (public, private string, err error) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", "", err
	}
	key, err := ssh.NewPublicKey(pub)
	if err != nil {
		return "", "", err
	}
	block, err := ssh.MarshalPrivateKey(priv, comment)
	if err != nil {
		return "", "", err
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + " " + comment,
		string(pem.EncodeToMemory(block)), nil
}
