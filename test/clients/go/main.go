// Tries openai-go and anthropic-sdk-go: the argument says which. Prints a line of JSON for each feature and model.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	aoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

type feature struct {
	name string
	try  func(model string) error
}

var (
	ctx = context.Background()
	url = os.Getenv("SLUICE_URL")
	key = os.Getenv("SLUICE_KEY")
	// The key of an organization that has used up its limit of requests.
	spent = os.Getenv("SLUICE_SPENT_KEY")
	call  = `Weather? [[sim: call get_weather {"city":"Oslo"}]]`
)

func main() {
	features := openaiFeatures()
	if os.Args[1] == "anthropic" {
		features = anthropicFeatures()
	}
	for _, each := range features {
		for _, model := range strings.Split(os.Getenv("SLUICE_MODELS"), ",") {
			outcome, detail := "ok", ""
			if err := each.try(model); err != nil {
				outcome, detail = outcomeOf(err), err.Error()
			}
			line, _ := json.Marshal(map[string]string{
				"feature": each.name, "model": model, "outcome": outcome, "detail": detail,
			})
			fmt.Println(string(line))
		}
	}
}

func outcomeOf(err error) string {
	var ofOpenAI *openai.Error
	if errors.As(err, &ofOpenAI) {
		return fmt.Sprint(ofOpenAI.StatusCode)
	}
	var ofAnthropic *anthropic.Error
	if errors.As(err, &ofAnthropic) {
		return fmt.Sprint(ofAnthropic.StatusCode)
	}
	return "failed"
}

func says(text, wanted string) error {
	if !strings.Contains(text, wanted) {
		return fmt.Errorf("%q is not in %q", wanted, text)
	}
	return nil
}

func status(err error, wanted string) error {
	if err == nil || outcomeOf(err) != wanted {
		return fmt.Errorf("wanted %s: %v", wanted, err)
	}
	return nil
}

var schema = map[string]any{
	"type":       "object",
	"properties": map[string]any{"city": map[string]any{"type": "string"}},
	"required":   []string{"city"},
}

func openaiFeatures() []feature {
	client := openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
	tools := []openai.ChatCompletionToolUnionParam{
		openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "get_weather", Parameters: schema}),
	}
	chat := func(model, text string) openai.ChatCompletionNewParams {
		return openai.ChatCompletionNewParams{
			Model:    model,
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
		}
	}
	return []feature{
		{"Chat: plain", func(model string) error {
			reply, err := client.Chat.Completions.New(ctx, chat(model, "Hello"))
			if err != nil {
				return err
			}
			return says(reply.Choices[0].Message.Content, "You said: Hello")
		}},
		{"Chat: stream accumulator", func(model string) error {
			stream := client.Chat.Completions.NewStreaming(ctx, chat(model, "Hello"))
			all := openai.ChatCompletionAccumulator{}
			for stream.Next() {
				all.AddChunk(stream.Current())
			}
			if stream.Err() != nil {
				return stream.Err()
			}
			return says(all.Choices[0].Message.Content, "You said: Hello")
		}},
		{"Chat: tool loop", func(model string) error {
			params := chat(model, call)
			params.Tools = tools
			reply, err := client.Chat.Completions.New(ctx, params)
			if err != nil {
				return err
			}
			message := reply.Choices[0].Message
			if err := says(message.ToolCalls[0].Function.Arguments, "Oslo"); err != nil {
				return err
			}
			params.Messages = append(params.Messages, message.ToParam(), openai.ToolMessage("rain", message.ToolCalls[0].ID))
			reply, err = client.Chat.Completions.New(ctx, params)
			if err != nil {
				return err
			}
			return says(reply.Choices[0].Message.Content, "rain")
		}},
		{"Responses: plain, stream", func(model string) error {
			params := responses.ResponseNewParams{
				Model: model,
				Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Hello")},
			}
			reply, err := client.Responses.New(ctx, params)
			if err != nil {
				return err
			}
			if err := says(reply.OutputText(), "You said: Hello"); err != nil {
				return err
			}
			stream := client.Responses.NewStreaming(ctx, params)
			text := ""
			for stream.Next() {
				if event := stream.Current(); event.Type == "response.output_text.delta" {
					text += event.Delta
				}
			}
			if stream.Err() != nil {
				return stream.Err()
			}
			return says(text, "You said: Hello")
		}},
		{"models: list, get", func(model string) error {
			if _, err := client.Models.List(ctx); err != nil {
				return err
			}
			one, err := client.Models.Get(ctx, model)
			if err != nil {
				return err
			}
			return says(one.ID, model)
		}},
		{"errors: 404, 429", func(model string) error {
			_, err := client.Chat.Completions.New(ctx, chat("no-such-model", "Hello"))
			if err := status(err, "404"); err != nil {
				return err
			}
			_, err = client.Chat.Completions.New(ctx, chat(model, "Hello"), option.WithAPIKey(spent))
			return status(err, "429")
		}},
	}
}

func anthropicFeatures() []feature {
	client := anthropic.NewClient(
		aoption.WithBaseURL(url), aoption.WithAuthToken(key), aoption.WithHeaderDel("x-api-key"), aoption.WithMaxRetries(0))
	tools := []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
		Name:        "get_weather",
		InputSchema: anthropic.ToolInputSchemaParam{Properties: schema["properties"], Required: []string{"city"}},
	}}}
	ask := func(model, text string) anthropic.MessageNewParams {
		return anthropic.MessageNewParams{
			Model:     anthropic.Model(model),
			MaxTokens: 4000,
			Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))},
		}
	}
	textOf := func(message *anthropic.Message) string {
		text := ""
		for _, block := range message.Content {
			text += block.Text
		}
		return text
	}
	return []feature{
		{"plain", func(model string) error {
			reply, err := client.Messages.New(ctx, ask(model, "Hello"))
			if err != nil {
				return err
			}
			return says(textOf(reply), "You said: Hello")
		}},
		{"stream accumulator", func(model string) error {
			stream := client.Messages.NewStreaming(ctx, ask(model, "Hello"))
			all := anthropic.Message{}
			for stream.Next() {
				if err := all.Accumulate(stream.Current()); err != nil {
					return err
				}
			}
			if stream.Err() != nil {
				return stream.Err()
			}
			return says(textOf(&all), "You said: Hello")
		}},
		{"tool loop with thinking", func(model string) error {
			params := ask(model, call)
			params.Tools = tools
			params.Thinking = anthropic.ThinkingConfigParamOfEnabled(1024)
			reply, err := client.Messages.New(ctx, params)
			if err != nil {
				return err
			}
			results := []anthropic.ContentBlockParamUnion{}
			for _, block := range reply.Content {
				if block.Type == "tool_use" {
					results = append(results, anthropic.NewToolResultBlock(block.ID, "rain", false))
				}
			}
			params.Messages = append(params.Messages, reply.ToParam(), anthropic.NewUserMessage(results...))
			reply, err = client.Messages.New(ctx, params)
			if err != nil {
				return err
			}
			return says(textOf(reply), "rain")
		}},
		{"count_tokens", func(model string) error {
			params := ask(model, "Hello")
			_, err := client.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{
				Model: params.Model, Messages: params.Messages,
			})
			return err
		}},
		{"models: list, get", func(model string) error {
			if _, err := client.Models.List(ctx, anthropic.ModelListParams{}); err != nil {
				return err
			}
			one, err := client.Models.Get(ctx, model, anthropic.ModelGetParams{})
			if err != nil {
				return err
			}
			return says(one.ID, model)
		}},
		{"errors: 404, 429", func(model string) error {
			_, err := client.Messages.New(ctx, ask("no-such-model", "Hello"))
			if err := status(err, "404"); err != nil {
				return err
			}
			_, err = client.Messages.New(ctx, ask(model, "Hello"), aoption.WithAuthToken(spent))
			return status(err, "429")
		}},
	}
}
