package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/e2e/lab"
)

// denials are rules about users and groups whom no file of the host names.
const denials = `
[[policy]]
name = "banned"
users = ["dora"]
deny = "by user"

[[policy]]
name = "interns"
groups = ["interns"]
deny = "by group"
`

// ownNames runs a command where the name service has a module more, as a host of LDAP has, and what it knows is in a
// directory: nsswitch.conf, passwd and group.
func ownNames(dir string) []string {
	return []string{"/usr/bin/unshare", "--mount", "--propagation", "slave", "/bin/sh", "-c",
		`mount --bind "$0/nsswitch.conf" /etc/nsswitch.conf && mount --bind "$0" /var/lib/extrausers && exec "$@"`, dir}
}

// deniedByName: of four users three must be refused: by name, by a group's name, and because nobody knows who it is.
func deniedByName(ctx context.Context, s *site) error {
	if _, err := os.Stat("/var/lib/extrausers"); err != nil {
		return fmt.Errorf("libnss-extrausers is missing: %w", err)
	}
	names := s.path("names")
	const dora, erik, ivan, nobody = 50, 51, 52, 53
	line := func(name string, n int) string {
		return fmt.Sprintf("%s:x:%d:%[2]d::/nonexistent:/bin/sh\n", name, firstAccount+n)
	}
	group := func(name string, n int) string { return fmt.Sprintf("%s:x:%d:\n", name, firstAccount+n) }
	for name, text := range map[string]string{
		"nsswitch.conf": "passwd: files extrausers\ngroup: files extrausers\nhosts: files dns\n", "shadow": "",
		"passwd": line("dora", dora) + line("erik", erik) + line("ivan", ivan),
		"group":  group("physics", dora) + group("theory", erik) + group("interns", ivan) + group("nameless", nobody),
	} {
		if err := errors.Join(os.MkdirAll(names, 0o755),
			os.WriteFile(filepath.Join(names, name), []byte(text), 0o644)); err != nil {
			return err
		}
	}
	l, err := s.start(ctx, lab.Options{NoImage: true, Config: denials, Within: ownNames(names)})
	if err != nil {
		return err
	}
	for _, c := range []struct {
		who  int
		want string // in what it is told
	}{{dora, "by user"}, {ivan, "by group"}, {nobody, "[no-names]"}, {erik, ""}} {
		user, err := s.account(c.who)
		if err != nil {
			return err
		}
		out, err := user.command(ctx, s.grange(), "--socket", l.Socket, "exec", "--", "true").CombinedOutput()
		said := string(out)
		switch {
		case err == nil:
			return fmt.Errorf("a host without an image ran a job: %s", said)
		case c.want == "" && !strings.Contains(said, "no-image") && !strings.Contains(said, "image"):
			return fmt.Errorf("a user of no rule got no further than the rules: %s", said)
		case !strings.Contains(said, c.want):
			return breach("user %d is not refused by a rule, or because of its name: %s", user.uid, said)
		}
	}
	return nil
}
