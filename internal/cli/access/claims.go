package access

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// explainClaims prints what claims would give.
func (a authCommands) explainClaims(ctx context.Context, c *fleet.Client, file, issuer string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	r := fleet.ClaimsRequest{Issuer: issuer}
	if err := json.Unmarshal(text, &r.Claims); err != nil {
		return app.Usage("the payload of a token, as JSON", "%s has no claims: %v", file, err)
	}
	said, err := c.ExplainClaims(ctx, r)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(said)
	}
	a.printClaims(said)
	return nil
}

func (a authCommands) printClaims(said fleet.ClaimsExplanation) {
	switch {
	case said.Refused != "":
		fmt.Fprintf(a.Out, "nobody is signed in: %s\n  %s\n", farm.Printable(said.Refused), farm.Printable(said.Hint))
	case said.New:
		fmt.Fprintf(a.Out, "user %s, who would be new\n", farm.Printable(said.User))
	default:
		fmt.Fprintf(a.Out, "user %s, whose own roles are: %s\n", farm.Printable(said.User), grantsText(said.Own))
	}
	for _, m := range said.Rules {
		fmt.Fprintf(a.Out, "  %s, by %s=%q of issuer %s\n", grantsText([]fleet.Grant{{Role: m.Role, Project: m.Project,
			Cell: m.Cell}}), farm.Printable(m.Claim), m.Value, m.Issuer)
	}
	for _, line := range said.Ignored {
		fmt.Fprintf(a.Out, "  ignored: %s\n", farm.Printable(line))
	}
}
