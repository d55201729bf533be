# Which GPUs run which code: the rules of relink/gpu/amd/target_id.py, with its table.
{ lib }:

let
  table = builtins.fromJSON (builtins.readFile ./isa.json);
  parse =
    text:
    let
      parts = lib.splitString ":" text;
      feature =
        part:
        let
          end = builtins.stringLength part - 1;
        in
        {
          name = builtins.substring 0 end part;
          value = builtins.substring end 1 part == "+";
        };
    in
    {
      processor = builtins.head parts;
      features = builtins.listToAttrs (map feature (builtins.tail parts));
    };
  configurations =
    agent:
    builtins.foldl'
      (
        done: name:
        builtins.concatMap (
          one:
          map (value: one // { ${name} = value; }) (
            if agent.features ? ${name} then
              [ agent.features.${name} ]
            else
              [
                false
                true
              ]
          )
        ) done
      )
      [ { } ]
      (
        table.processors.${agent.processor} or [
          "sramecc"
          "xnack"
        ]
      );
  runs =
    code: processor: configuration:
    let
      target = parse code.target;
      joined = (table.generics.${target.processor} or { }).${processor} or null;
      agrees = name: (configuration.${name} or null) == target.features.${name};
    in
    target.processor == table.spirv
    || (
      builtins.all agrees (builtins.attrNames target.features)
      && (
        target.processor == processor
        || (joined != null && (code.version == null || code.version >= joined))
      )
    );
in
{
  # The processor whose code a HIP runtime that was patched for it takes for this GPU, or null.
  standIn = gpu: table.extended.${(parse gpu).processor} or null;

  # A GPU needs code in every bundle; one that has it in some configurations only (xnack on, say) is let pass.
  covers =
    file: gpu:
    let
      agent = parse gpu;
    in
    builtins.any (
      configuration: builtins.all (builtins.any (code: runs code agent.processor configuration)) file.sets
    ) (configurations agent);
}
