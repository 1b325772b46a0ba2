package main

import (
	"context"
	"os"
	"strings"
)

// tenantsFarm has two projects on one network, which see nothing of each other: ann is in one, bob in the other. eve
// has no role.
const tenantsFarm = `
[cells.general]
broker = "grange"
default = true

[projects.one]
[projects.two]

[users.ann]
[users.bob]
[users.eve]

[[grants]]
user = "ann"
role = "member"
project = "one"

[[grants]]
user = "bob"
role = "member"
project = "two"

[shapes.tiny]
cpus = 1
memory = "192M"

[networks.shared]
bridge = "br0"
addresses = ["10.77.1.1-10.77.1.250/16"]
`

// tenants starts a farm with two projects; more is added to its file.
func (s *site) tenants(ctx context.Context, more ...string) (*standalone, error) {
	a, err := s.standalone(ctx)
	if err != nil {
		return nil, err
	}
	if err = os.WriteFile(a.path("farm.toml"), []byte(tenantsFarm+strings.Join(more, "")), 0o600); err == nil {
		_, err = a.grange(ctx, "apply", "-f", a.path("farm.toml"))
	}
	if err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}
